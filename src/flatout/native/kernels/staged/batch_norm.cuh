// A block has 32 columns, with 8 threads for each: they take every eighth row.
constexpr int COLUMNS = 32, LINES = THREADS / COLUMNS;

DEVICE float column_sum(float value, BlockScratch& scratch) {
    const int t = threadIdx.x;
    scratch.values[t] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int line = 0; line < LINES; line++) sum += scratch.values[line * COLUMNS + t % COLUMNS];
    __syncthreads();
    return sum;
}

// Statistics of this batch, and the moving ones brought forward. kept[0] is the mean, kept[1] is 1 / sqrt(variance + eps).
template <int WIDTH>
DEVICE void batch_norm_forward(const float* x, const float* gamma, const float* beta, float* moving_mean,
                               float* moving_variance, float* kept, float* y, float epsilon, float momentum,
                               float one_minus_momentum, int rows) {
    SHARED(BlockScratch, scratch);
    const int line = threadIdx.x / COLUMNS, column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const bool has_column = column < WIDTH;
    float sum = 0.0f;
    if (has_column)
        for (int row = line; row < rows; row += LINES) sum += x[row * WIDTH + column];
    const float mean = column_sum(sum, scratch) / rows;
    sum = 0.0f;
    if (has_column)
        for (int row = line; row < rows; row += LINES) {
            const float off = x[row * WIDTH + column] - mean;
            sum += off * off;
        }
    const float variance = column_sum(sum, scratch) / rows;
    if (!has_column) return;
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    const float scale = gamma ? inverse * gamma[column] : inverse, shift = beta ? beta[column] : 0.0f;
    for (int row = line; row < rows; row += LINES) {
        const int at = row * WIDTH + column;
        y[at] = (x[at] - mean) * scale + shift;
    }
    if (line == 0) {
        kept[column] = mean;
        kept[WIDTH + column] = inverse;
        moving_mean[column] = moving_mean[column] * momentum + mean * one_minus_momentum;
        moving_variance[column] = moving_variance[column] * momentum + variance * one_minus_momentum;
    }
}

// With the moving statistics: in evaluation, prediction, and training of a frozen layer.
template <int WIDTH>
DEVICE void batch_norm_inference(const float* x, const float* gamma, const float* beta, const float* moving_mean,
                                 const float* moving_variance, float* y, float epsilon, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * WIDTH) return;
    const int column = i % WIDTH;
    const float inverse = 1.0f / sqrtf(moving_variance[column] + epsilon);
    const float scale = gamma ? inverse * gamma[column] : inverse, shift = beta ? beta[column] : 0.0f;
    y[i] = (x[i] - moving_mean[column]) * scale + shift;
}

template <int WIDTH>
DEVICE void batch_norm_inference_backward(const float* dy, const float* gamma, const float* moving_variance, float* dx,
                                          float epsilon, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * WIDTH) return;
    const float inverse = 1.0f / sqrtf(moving_variance[i % WIDTH] + epsilon);
    dx[i] = dy[i] * (gamma ? inverse * gamma[i % WIDTH] : inverse);
}

// `dx` may be absent: nothing before this layer is trained.
template <int WIDTH>
DEVICE void batch_norm_backward(const float* dy, const float* x, const float* kept, const float* gamma, float* dgamma,
                                float* dbeta, float* dx, int rows) {
    SHARED(BlockScratch, scratch);
    const int line = threadIdx.x / COLUMNS, column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const bool has_column = column < WIDTH;
    const float mean = has_column ? kept[column] : 0.0f, inverse = has_column ? kept[WIDTH + column] : 0.0f;
    float sum = 0.0f, sum_of_products = 0.0f;
    if (has_column)
        for (int row = line; row < rows; row += LINES) {
            const int at = row * WIDTH + column;
            sum += dy[at];
            sum_of_products += dy[at] * ((x[at] - mean) * inverse);
        }
    sum = column_sum(sum, scratch);
    sum_of_products = column_sum(sum_of_products, scratch);
    if (!has_column) return;
    if (line == 0 && dgamma) dgamma[column] = sum_of_products;
    if (line == 0 && dbeta) dbeta[column] = sum;
    if (!dx) return;
    const float scale = gamma ? inverse * gamma[column] : inverse;
    for (int row = line; row < rows; row += LINES) {
        const int at = row * WIDTH + column;
        const float normal = (x[at] - mean) * inverse;
        dx[at] = scale * (dy[at] - sum / rows - normal * (sum_of_products / rows));
    }
}
