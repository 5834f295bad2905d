// Penalties and norms: one block for each variable, summed in a fixed order.
DEVICE void penalty(const float* weights, int count, float l1, float l2, float* result) {
    SHARED(BlockScratch, scratch);
    float absolute = 0.0f, squared = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        absolute += fabsf(weights[i]);
        squared += weights[i] * weights[i];
    }
    absolute = block_sum(absolute, scratch);
    squared = block_sum(squared, scratch);
    if (threadIdx.x == 0) *result = l1 * absolute + l2 * squared;
}

DEVICE void squared_norm(const float* gradient, int count, float* result) {
    SHARED(BlockScratch, scratch);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += gradient[i] * gradient[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *result = sum;
}

// Keras' clipnorm.
DEVICE float clipped_by_norm(float gradient, float squared, float most) {
    const float norm = squared > 0.0f ? sqrtf(squared) : squared;
    return gradient * most / (norm > most || norm != norm ? norm : most);
}

// Keras' global_clipnorm; a norm that is not finite makes every gradient NaN.
DEVICE float global_scale(const float* squared, int variables, float most) {
    float sum = 0.0f;
    for (int v = 0; v < variables; v++) sum += squared[v];
    const float norm = sqrtf(sum);
    return most * fminf(1.0f / norm, 1.0f / most) + (norm - norm);
}
