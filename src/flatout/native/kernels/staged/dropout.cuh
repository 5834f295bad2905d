// Masks from a hash of seed, step and place: forward and backward compute the same one, and none is stored.
DEVICE unsigned int hashed(unsigned int value) {
    value ^= value >> 16;
    value *= 0x7feb352du;
    value ^= value >> 15;
    value *= 0x846ca68bu;
    return value ^ (value >> 16);
}

// The same function both ways: y = x / (1 - rate) where the mask keeps, else 0. `seed` is Keras' seed and its counter.
template <int FEATURES> DEVICE void dropout(const float* x, const int* seed, const int* clock, float rate, float* y, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * FEATURES) return;
    const unsigned int step = hashed((unsigned int)seed[0] ^ hashed((unsigned int)(seed[1] + clock[1])));
    const float uniform = (hashed(step ^ hashed((unsigned int)i)) >> 8) * (1.0f / 16777216.0f);
    y[i] = uniform >= rate ? x[i] / (1.0f - rate) : 0.0f;
}
