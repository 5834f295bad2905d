// An activation on its own; beside a Dense layer it is part of that layer's kernels.
template <int FEATURES, class Act> DEVICE void activation_forward(const float* z, float* y, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < rows * FEATURES) y[i] = Act::value(z[i]);
}

// dz = dy * slope. `z` may be absent where the slope follows from y.
template <int FEATURES, class Act>
DEVICE void activation_backward(const float* dy, const float* z, const float* y, float* dz, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < rows * FEATURES) dz[i] = times_slope(dy[i], Act::slope(z ? z[i] : 0.0f, y[i]));
}

// Rows of WIDTH values, LANES threads for each.
template <int WIDTH, int LANES> DEVICE void softmax_forward(const float* z, float* y, int rows) {
    SHARED(BlockScratch, scratch);
    const int row = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const long long base = (long long)row * WIDTH;
    row_softmax<WIDTH, LANES>(z + base, y + base, row < rows, scratch);
}

template <int WIDTH, int LANES> DEVICE void softmax_backward(const float* dy, const float* y, float* dz, int rows) {
    SHARED(BlockScratch, scratch);
    const int row = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool has_row = row < rows;
    const long long base = (long long)row * WIDTH;
    float sum = 0.0f;
    if (has_row)
        for (int c = lane; c < WIDTH; c += LANES) sum += dy[base + c] * y[base + c];
    sum = row_sum<LANES>(sum, scratch);
    if (has_row)
        for (int c = lane; c < WIDTH; c += LANES) dz[base + c] = y[base + c] * (dy[base + c] - sum);
}
