// Around the fused kernel: x as halves before it, sums of loss and metrics after it.
enum FusedInput { FUSED_PLAIN, FUSED_RESCALE, FUSED_NORMALIZE };

// A value of x as the first Dense layer is given it, or (FUSED_PLAIN) as it lies.
template <int KIND, class From> DEVICE float fused_input(From value, const float* scale, const float* offset, int feature) {
    const float x = (float)value;
    if (KIND == FUSED_RESCALE) return x * scale[feature] + offset[feature];
    if (KIND == FUSED_NORMALIZE) return (x - offset[feature]) / scale[feature];
    return x;
}

// The largest magnitude of each feature in each of `parts` parts of the rows, as the bits of a float: a NaN is larger than all.
template <int INPUTS, int KIND, class From>
DEVICE void fused_range(const From* x, const float* scale, const float* offset, int* largest, int rows, int parts) {
    const int feature = blockIdx.x * THREADS + threadIdx.x, part = blockIdx.y;
    if (feature >= INPUTS) return;
    unsigned int most = 0;
    for (long long row = part; row < rows; row += parts) {
        const unsigned int bits = bits_of(fused_input<KIND>(x[row * INPUTS + feature], scale, offset, feature)) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    largest[part * INPUTS + feature] = (int)most;
}

// Rows of halves: x * numbers[1], and with two planes the rest; zeros up to a multiple of 16 features.
template <int INPUTS, int PADDED, int PLANES, int KIND, class From>
DEVICE void fused_split(const From* x, const float* scale, const float* offset, const float* numbers, u16* planes,
                        int rows) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (long long)rows * PADDED) return;
    const long long row = i / PADDED;
    const int feature = (int)(i % PADDED);
    float value = 0.0f, hi, zero;
    if (feature < INPUTS) value = fused_input<KIND>(x[row * INPUTS + feature], scale, offset, feature) * numbers[1];
    const u32 word = pack_halves(value, 0.0f);
    unpack_halves(word, hi, zero);
    planes[row * (PLANES * PADDED) + feature] = (u16)word;
    if (PLANES == 2) planes[row * (PLANES * PADDED) + PADDED + feature] = (u16)pack_halves(value - hi, 0.0f);
}

// Loss and right answers of each step, summed over its rows in their order.
template <int BATCH> DEVICE void fused_step_sums(const float* row_sums, const int* span, float* step_sums) {
    const int s = blockIdx.x * THREADS + threadIdx.x;
    if (s >= span[1]) return;
    float loss = 0.0f, right = 0.0f;
    for (int row = 0; row < BATCH; row++) {
        loss += row_sums[2 * ((long long)s * BATCH + row)];
        right += row_sums[2 * ((long long)s * BATCH + row) + 1];
    }
    step_sums[2 * s] = loss;
    step_sums[2 * s + 1] = right;
}

// One block: the totals of loss and metrics, and the log of them after each step. Nothing if the steps were not taken.
template <int BATCH, int METRICS>
DEVICE void fused_log(const float* step_sums, const int* span, const int* failed, float* totals, float* log) {
    SHARED(BlockScratch, scratch);
    if (*failed) return;
    const int t = threadIdx.x, steps = span[1];
    float loss = totals[0], count = totals[1], right[METRICS + 1], counts[METRICS + 1];
    for (int m = 0; m < METRICS; m++) {
        right[m] = totals[2 * m + 2];
        counts[m] = totals[2 * m + 3];
    }
    __syncthreads();
    for (int first = 0; first < steps; first += THREADS / 2) {
        const int here = steps - first < THREADS / 2 ? steps - first : THREADS / 2;
        if (t < 2 * here) scratch.values[t] = step_sums[2 * first + t];
        __syncthreads();
        if (t == 0)
            for (int s = 0; s < here; s++) {
                float* line = log + (long long)(first + s) * 2 * (METRICS + 1);
                loss += scratch.values[2 * s];
                count += BATCH;
                line[0] = loss;
                line[1] = count;
                for (int m = 0; m < METRICS; m++) {
                    line[2 * m + 2] = right[m] += scratch.values[2 * s + 1];
                    line[2 * m + 3] = counts[m] += BATCH;
                }
            }
        __syncthreads();
    }
    if (t == 0) {
        totals[0] = loss;
        totals[1] = count;
        for (int m = 0; m < METRICS; m++) {
            totals[2 * m + 2] = right[m];
            totals[2 * m + 3] = counts[m];
        }
    }
}
