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

// The sum over the block's threads, given to each of them.
DEVICE float block_sum(float value, BlockScratch& scratch) {
    const int t = threadIdx.x;
    scratch.values[t] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (t < width) scratch.values[t] += scratch.values[t + width];
        __syncthreads();
    }
    const float sum = scratch.values[0];
    __syncthreads();
    return sum;
}

// The same over groups of LANES threads, a power of two: each group has a row of its own.
template <int LANES> DEVICE float row_sum(float value, BlockScratch& scratch) {
    if (LANES == 1) return value;
    const int t = threadIdx.x, lane = t % LANES;
    scratch.values[t] = value;
    __syncthreads();
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (lane < width) scratch.values[t] += scratch.values[t + width];
        __syncthreads();
    }
    const float sum = scratch.values[t - lane];
    __syncthreads();
    return sum;
}

template <int LANES> DEVICE float row_max(float value, BlockScratch& scratch) {
    if (LANES == 1) return value;
    const int t = threadIdx.x, lane = t % LANES;
    scratch.values[t] = value;
    __syncthreads();
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (lane < width) scratch.values[t] = fmaxf(scratch.values[t], scratch.values[t + width]);
        __syncthreads();
    }
    const float most = scratch.values[t - lane];
    __syncthreads();
    return most;
}

struct Linear {
    DEVICE float value(float z) { return z; }
    DEVICE float slope(float z, float y) { return 1.0f; }
};
