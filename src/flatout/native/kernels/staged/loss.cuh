// Each row's loss, and its gradient by what the last layer was given. Rows have LANES threads each.
//
// Keras' losses know four ways to the logarithm of a probability:
//   FROM_LOGITS         log_softmax of the output
//   FROM_Z              log_softmax of what the last activation was given: tensorflow, after softmax or sigmoid
//   FROM_PROBABILITIES  the output divided by its sum, clipped to [eps, 1 - eps], then log
//   FROM_CLIPPED        the output clipped, log, and then log_softmax: sparse labels on tensorflow
enum LossForm { FROM_LOGITS, FROM_Z, FROM_PROBABILITIES, FROM_CLIPPED };

struct SparseTarget {
    int label;
    DEVICE_MEMBER float at(int c) const { return c == label ? 1.0f : 0.0f; }
};

struct DenseTarget {
    const float* row;
    float keep, add;
    DEVICE_MEMBER float at(int c) const { return row[c] * keep + add; }
};

// SOFTMAX: `z` are logits, of which `p` becomes the softmax. Else `p` is given, and Act is what gave it; `z`, which Act was
// given, may be absent where its slope follows from `p`.
template <int WIDTH, int LANES, int FORM, bool SOFTMAX, bool TARGETS_SUM_TO_1, class Act, class Target>
DEVICE void cross_entropy(const float* z, float* p, Target target, float* row_loss, float* dz, const float* weight,
                          float epsilon, float scale, int row, int rows, BlockScratch& scratch) {
    const int lane = threadIdx.x % LANES;
    const bool has_row = row < rows;
    const long long base = (long long)row * WIDTH;
    if (SOFTMAX) row_softmax<WIDTH, LANES>(z + base, p + base, has_row, scratch);
    const float low = epsilon, high = 1.0f - epsilon;
    const float weighted = has_row && weight ? weight[row] : 1.0f;
    const float factor = scale * weighted;
    float loss = 0.0f;
    if (FORM == FROM_PROBABILITIES) {
        float total = 0.0f, inner = 0.0f;
        if (has_row)
            for (int c = lane; c < WIDTH; c += LANES) total += p[base + c];
        total = row_sum<LANES>(total, scratch);
        if (has_row)
            for (int c = lane; c < WIDTH; c += LANES) {
                const float q = p[base + c] / total, t = target.at(c);
                loss -= t * logf(clipped(q, low, high));
                if (q >= low && q <= high) inner -= t;
            }
        inner = row_sum<LANES>(inner, scratch);
        // dq = -t / q inside the clip, so that sum(dq * q) = -sum(t); dp = (dq - sum(dq * q)) / total.
        float by_softmax = 0.0f;
        if (dz && SOFTMAX) {
            if (has_row)
                for (int c = lane; c < WIDTH; c += LANES) {
                    const float q = p[base + c] / total, t = target.at(c);
                    const float dq = q >= low && q <= high ? -t / q : 0.0f;
                    by_softmax += (dq - inner) / total * p[base + c];
                }
            by_softmax = row_sum<LANES>(by_softmax, scratch);
        }
        if (dz && has_row)
            for (int c = lane; c < WIDTH; c += LANES) {
                const float q = p[base + c] / total, t = target.at(c);
                const float dq = q >= low && q <= high ? -t / q : 0.0f;
                const float dp = (dq - inner) / total;
                const float slope = SOFTMAX ? 1.0f : Act::slope(z ? z[base + c] : 0.0f, p[base + c]);
                dz[base + c] = factor * (SOFTMAX ? p[base + c] * (dp - by_softmax) : times_slope(dp, slope));
            }
    } else {
        const bool clips = FORM == FROM_CLIPPED;
        float most = LOWEST, sum = 0.0f, targets = 0.0f;
        const float* from = FORM == FROM_Z ? z : p;
        if (has_row)
            for (int c = lane; c < WIDTH; c += LANES) {
                const float u = clips ? logf(clipped(from[base + c], low, high)) : from[base + c];
                most = fmaxf(most, u);
                targets += target.at(c);
            }
        most = row_max<LANES>(most, scratch);
        targets = row_sum<LANES>(targets, scratch);
        if (has_row)
            for (int c = lane; c < WIDTH; c += LANES) {
                const float u = clips ? logf(clipped(from[base + c], low, high)) : from[base + c];
                sum += expf(u - most);
            }
        sum = row_sum<LANES>(sum, scratch);
        const float log_sum = logf(sum);
        const float share = TARGETS_SUM_TO_1 ? 1.0f : targets;
        if (has_row)
            for (int c = lane; c < WIDTH; c += LANES) {
                const float given = from[base + c];
                const float u = clips ? logf(clipped(given, low, high)) : given, t = target.at(c);
                loss -= t * (u - most - log_sum);
                if (!dz) continue;
                float du = expf(u - most) / sum * share - t;
                if (clips) du = given >= low && given <= high ? du / given : 0.0f;
                if (FORM != FROM_Z) du = times_slope(du, Act::slope(z ? z[base + c] : 0.0f, given));
                dz[base + c] = factor * du;
            }
    }
    loss = row_sum<LANES>(loss, scratch);
    if (has_row && lane == 0) row_loss[row] = loss * weighted;
}

// Losses that are the mean of a function of one prediction and one target.
template <int WIDTH, int LANES, class Pointwise, class Act>
DEVICE void pointwise_loss(const float* z, const float* p, const float* y, float* row_loss, float* dz, const float* weight,
                           float scale, int row, int rows, BlockScratch& scratch) {
    const int lane = threadIdx.x % LANES;
    const bool has_row = row < rows;
    const long long base = (long long)row * WIDTH;
    const float weighted = has_row && weight ? weight[row] : 1.0f;
    float loss = 0.0f;
    if (has_row)
        for (int c = lane; c < WIDTH; c += LANES) {
            const float given = Pointwise::FROM_Z ? z[base + c] : p[base + c], t = y[base + c];
            loss += Pointwise::value(given, t);
            if (!dz) continue;
            const float slope = Pointwise::FROM_Z ? 1.0f : Act::slope(z ? z[base + c] : 0.0f, p[base + c]);
            dz[base + c] = times_slope(scale * weighted / WIDTH * Pointwise::slope(given, t), slope);
        }
    loss = row_sum<LANES>(loss, scratch);
    if (has_row && lane == 0) row_loss[row] = loss / WIDTH * weighted;
}
