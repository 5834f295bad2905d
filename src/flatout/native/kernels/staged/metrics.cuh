// A row's value of each metric, one thread a row.
template <int WIDTH> DEVICE int argmax(const float* values) {
    int best = 0;
    for (int c = 1; c < WIDTH; c++)
        if (values[c] > values[best]) best = c;
    return best;
}
template <int WIDTH> DEVICE float sparse_accuracy(const float* p, int label) { return argmax<WIDTH>(p) == label ? 1.0f : 0.0f; }
template <int WIDTH> DEVICE float categorical_accuracy(const float* p, const float* y) {
    return argmax<WIDTH>(p) == argmax<WIDTH>(y) ? 1.0f : 0.0f;
}
template <int WIDTH> DEVICE float binary_accuracy(const float* p, const float* y, float threshold) {
    float right = 0.0f;
    for (int c = 0; c < WIDTH; c++) right += (p[c] > threshold ? 1.0f : 0.0f) == y[c] ? 1.0f : 0.0f;
    return right / WIDTH;
}
template <int WIDTH> DEVICE float squared_error(const float* p, const float* y) {
    float sum = 0.0f;
    for (int c = 0; c < WIDTH; c++) sum += (p[c] - y[c]) * (p[c] - y[c]);
    return sum / WIDTH;
}
template <int WIDTH> DEVICE float absolute_error(const float* p, const float* y) {
    float sum = 0.0f;
    for (int c = 0; c < WIDTH; c++) sum += fabsf(p[c] - y[c]);
    return sum / WIDTH;
}

// One block. totals[0] and [1] are the loss' sum and count, then those of each metric; all go to `log` too, in the line
// of this step, and the clock is put forward. WEIGHTED has a bit for each metric that counts rows by their weights.
template <int METRICS, int PENALTIES, unsigned int WEIGHTED>
DEVICE void accumulate(const float* row_loss, const float* scores, const float* weight, const float* penalties, float scale,
                       bool mean, float* totals, float* log, int* clock, int rows) {
    SHARED(BlockScratch, scratch);
    const int t = threadIdx.x;
    float sum = 0.0f, weights = 0.0f;
    for (int row = t; row < rows; row += THREADS) sum += row_loss[row];
    sum = block_sum(sum, scratch);
    if (WEIGHTED) {
        for (int row = t; row < rows; row += THREADS) weights += weight[row];
        weights = block_sum(weights, scratch);
    }
    float* line = log + (long long)clock[1] * 2 * (METRICS + 1);
    if (t == 0) {
        float loss = (mean ? sum / rows : sum) * scale;
        for (int n = 0; n < PENALTIES; n++) loss += penalties[n];
        totals[0] += loss * rows;
        totals[1] += rows;
        line[0] = totals[0];
        line[1] = totals[1];
    }
    for (int metric = 0; metric < METRICS; metric++) {
        const bool by_weight = WEIGHTED >> metric & 1;
        float total = 0.0f;
        for (int row = t; row < rows; row += THREADS)
            total += scores[metric * rows + row] * (by_weight ? weight[row] : 1.0f);
        total = block_sum(total, scratch);
        if (t == 0) {
            float* pair = totals + 2 * (metric + 1);
            pair[0] += total;
            pair[1] += by_weight ? weights : (float)rows;
            line[2 * (metric + 1)] = pair[0];
            line[2 * (metric + 1) + 1] = pair[1];
        }
    }
    // Every thread has read the clock: the block has met a barrier since.
    if (t == 0) {
        clock[0] += rows;
        clock[1] += 1;
    }
}
