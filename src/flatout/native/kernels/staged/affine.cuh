// Rescaling: y = x * scale + offset. Normalization: y = (x - offset) / scale, or y = offset + x * scale if inverted.
enum AffineKind { RESCALE, NORMALIZE };

template <int FEATURES, int KIND>
DEVICE void affine_forward(const float* x, const float* scale, const float* offset, float* y, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * FEATURES) return;
    const int f = i % FEATURES;
    y[i] = KIND == RESCALE ? x[i] * scale[f] + offset[f] : (x[i] - offset[f]) / scale[f];
}

template <int FEATURES, int KIND> DEVICE void affine_backward(const float* dy, const float* scale, float* dx, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * FEATURES) return;
    const int f = i % FEATURES;
    dx[i] = KIND == RESCALE ? dy[i] * scale[f] : dy[i] / scale[f];
}
