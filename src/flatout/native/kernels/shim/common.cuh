// Sums in a fixed order: no atomic additions, so the same step gives the same bits.
constexpr int THREADS = 256;
constexpr float LOWEST = -3.402823466e38f;

// As Keras clips: a NaN stays one, which fminf and fmaxf would hide.
DEVICE float clipped(float value, float low, float high) { return value != value ? value : fminf(fmaxf(value, low), high); }

// A gradient times a slope. Where the slope is 0 the gradient is not looked at, be it NaN, as frameworks do it for relu.
DEVICE float times_slope(float gradient, float slope) { return slope == 0.0f ? 0.0f : gradient * slope; }

struct BlockScratch {
    float values[THREADS];
};

// `join` over groups of LANES threads, a power of two, given to each of them.
template <int LANES, class Join> DEVICE float joined(float value, BlockScratch& scratch, Join join) {
    if (LANES == 1) return value;
    const int t = threadIdx.x, lane = t % LANES;
    scratch.values[t] = value;
    __syncthreads();
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (lane < width) scratch.values[t] = join(scratch.values[t], scratch.values[t + width]);
        __syncthreads();
    }
    const float all = scratch.values[t - lane];
    __syncthreads();
    return all;
}
// Each group has a row of its own.
template <int LANES> DEVICE float row_sum(float value, BlockScratch& scratch) {
    return joined<LANES>(value, scratch, [](float a, float b) { return a + b; });
}
template <int LANES> DEVICE float row_max(float value, BlockScratch& scratch) {
    return joined<LANES>(value, scratch, [](float a, float b) { return fmaxf(a, b); });
}
DEVICE float block_sum(float value, BlockScratch& scratch) { return row_sum<THREADS>(value, scratch); }

// y = softmax(z) of a row of WIDTH values, by the LANES threads that have it. Threads without a row meet the barriers too.
template <int WIDTH, int LANES> DEVICE void row_softmax(const float* z, float* y, bool has_row, BlockScratch& scratch) {
    const int lane = threadIdx.x % LANES;
    float most = LOWEST, sum = 0.0f;
    if (has_row)
        for (int c = lane; c < WIDTH; c += LANES) most = fmaxf(most, z[c]);
    most = row_max<LANES>(most, scratch);
    if (has_row)
        for (int c = lane; c < WIDTH; c += LANES) sum += expf(z[c] - most);
    sum = row_sum<LANES>(sum, scratch);
    if (has_row)
        for (int c = lane; c < WIDTH; c += LANES) y[c] = expf(z[c] - most) / sum;
}

struct Linear {
    DEVICE float value(float z) { return z; }
    DEVICE float slope(float z, float y) { return 1.0f; }
};
