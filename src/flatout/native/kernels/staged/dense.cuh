// Products of matrices by tiles: a block has 16 x 16 threads and computes a tile of 16 PER x 16 PER results from
// DEPTH columns and rows at a time in shared memory. The strides say which operand is transposed.
constexpr int DEPTH = 32;

template <int PER> struct Tiles {
    float a[DEPTH][16 * PER + 1];
    float b[DEPTH][16 * PER + 1];
};

// sums[i][j] += A(row, k) * B(k, column) for the thread's results and k from `begin` to `end`. A(row, k) lies at
// a[row * A_ROW + k * A_K], or is 1 in row `ones`; B(k, column) lies at b[k * B_K + column * B_COLUMN].
template <int PER, int A_ROW, int A_K, int B_K, int B_COLUMN>
DEVICE void multiply(const float* a, const float* b, int rows, int columns, int ones, int begin, int end,
                     Tiles<PER>& tiles, float (&sums)[PER][PER]) {
    constexpr int SIDE = 16 * PER;
    const int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const int row0 = blockIdx.y * SIDE, column0 = blockIdx.x * SIDE;
    for (int k0 = begin; k0 < end; k0 += DEPTH) {
        for (int n = t; n < SIDE * DEPTH; n += THREADS) {
            // Neighbouring threads read neighbouring addresses.
            const int i = A_K == 1 ? n / DEPTH : n % SIDE, ka = A_K == 1 ? n % DEPTH : n / SIDE;
            const int row = row0 + i, k_of_a = k0 + ka;
            float value = 0.0f;
            if (k_of_a < end && row < rows) value = row == ones ? 1.0f : a[row * A_ROW + k_of_a * A_K];
            tiles.a[ka][i] = value;
            const int j = B_K == 1 ? n / DEPTH : n % SIDE, kb = B_K == 1 ? n % DEPTH : n / SIDE;
            const int column = column0 + j, k_of_b = k0 + kb;
            tiles.b[kb][j] = k_of_b < end && column < columns ? b[k_of_b * B_K + column * B_COLUMN] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float left[PER], right[PER];
            for (int i = 0; i < PER; i++) left[i] = tiles.a[k][ty + 16 * i];
            for (int j = 0; j < PER; j++) right[j] = tiles.b[k][tx + 16 * j];
            for (int i = 0; i < PER; i++)
                for (int j = 0; j < PER; j++) sums[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
}

// What a thread does with each of its results: `use(row, column, sum)`.
template <int PER, class Use> DEVICE void each_result(float (&sums)[PER][PER], int rows, int columns, Use use) {
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int i = 0; i < PER; i++)
        for (int j = 0; j < PER; j++) {
            const int row = blockIdx.y * 16 * PER + ty + 16 * i, column = blockIdx.x * 16 * PER + tx + 16 * j;
            if (row < rows && column < columns) use(row, column, sums[i][j]);
        }
}

// A share of the terms for each blockIdx.z.
struct Share {
    int begin, end;
};
DEVICE Share share_of(int terms, int parts) {
    const int each = (terms + parts - 1) / parts, begin = blockIdx.z * each;
    return {begin < terms ? begin : terms, begin + each < terms ? begin + each : terms};
}

template <class Act> DEVICE void store_activated(float z, int at, float* pre, float* y) {
    if (pre) pre[at] = z;
    y[at] = Act::value(z);
}

// y[rows, OUT] = Act(x[rows, IN] @ kernel + bias). `pre` keeps what Act was given, where its slope needs that.
template <int PER, int IN, int OUT, class Act>
DEVICE void dense_forward(const float* x, const float* kernel, const float* bias, float* pre, float* y, int rows) {
    SHARED(Tiles<PER>, tiles);
    float sums[PER][PER] = {};
    multiply<PER, IN, 1, OUT, 1>(x, kernel, rows, OUT, -1, 0, IN, tiles, sums);
    each_result<PER>(sums, rows, OUT, [&](int row, int column, float sum) {
        store_activated<Act>(sum + (bias ? bias[column] : 0.0f), row * OUT + column, pre, y);
    });
}

// The same in two kernels, for few rows and many features: PARTS sums of parts of the features, then their sum.
template <int PER, int IN, int OUT, int PARTS>
DEVICE void dense_forward_parts(const float* x, const float* kernel, float* parts, int rows) {
    SHARED(Tiles<PER>, tiles);
    float sums[PER][PER] = {};
    const Share share = share_of(IN, PARTS);
    multiply<PER, IN, 1, OUT, 1>(x, kernel, rows, OUT, -1, share.begin, share.end, tiles, sums);
    float* mine = parts + (long long)blockIdx.z * rows * OUT;
    each_result<PER>(sums, rows, OUT, [&](int row, int column, float sum) { mine[row * OUT + column] = sum; });
}

template <int OUT, int PARTS, class Act>
DEVICE void dense_forward_sum(const float* parts, const float* bias, float* pre, float* y, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * OUT) return;
    float sum = 0.0f;
    for (int part = 0; part < PARTS; part++) sum += parts[(long long)part * rows * OUT + i];
    store_activated<Act>(sum + (bias ? bias[i % OUT] : 0.0f), i, pre, y);
}

// dx[rows, IN] = dz[rows, OUT] @ kernel^T, times the slope of the activation that gave x.
template <int PER, int IN, int OUT, class Before>
DEVICE void dense_backward_input(const float* dz, const float* kernel, const float* pre, const float* x, float* dx,
                                 int rows) {
    SHARED(Tiles<PER>, tiles);
    float sums[PER][PER] = {};
    multiply<PER, OUT, 1, 1, OUT>(dz, kernel, rows, IN, -1, 0, OUT, tiles, sums);
    each_result<PER>(sums, rows, IN, [&](int row, int column, float sum) {
        const int at = row * IN + column;
        dx[at] = times_slope(sum, Before::slope(pre ? pre[at] : 0.0f, x ? x[at] : 0.0f));
    });
}

// The gradient of L1 and L2 penalties.
DEVICE float penalty_slope(float weight, float l1, float l2) {
    const float sign = weight > 0.0f ? 1.0f : weight < 0.0f ? -1.0f : 0.0f;
    return l1 * sign + 2.0f * l2 * weight;
}

struct Penalties {
    float kernel_l1, kernel_l2, bias_l1, bias_l2;
};

// Weights without a penalty are not read.
template <int IN, int OUT>
DEVICE void store_gradient(int row, int column, float sum, const float* kernel, const float* bias, float* dkernel,
                           float* dbias, Penalties by) {
    const int at = row * OUT + column;
    if (row < IN)
        dkernel[at] = kernel ? sum + penalty_slope(kernel[at], by.kernel_l1, by.kernel_l2) : sum;
    else
        dbias[column] = bias ? sum + penalty_slope(bias[column], by.bias_l1, by.bias_l2) : sum;
}

// dkernel[IN, OUT] = x^T @ dz. The bias is the weight of an input that is always 1: row IN of the product is its gradient.
template <int PER, int IN, int OUT>
DEVICE void dense_backward_weights(const float* x, const float* dz, const float* kernel, const float* bias, float* dkernel,
                                   float* dbias, Penalties by, int rows) {
    SHARED(Tiles<PER>, tiles);
    float sums[PER][PER] = {};
    const int inputs = dbias ? IN + 1 : IN;
    multiply<PER, 1, IN, OUT, 1>(x, dz, inputs, OUT, IN, 0, rows, tiles, sums);
    each_result<PER>(sums, inputs, OUT, [&](int row, int column, float sum) {
        store_gradient<IN, OUT>(row, column, sum, kernel, bias, dkernel, dbias, by);
    });
}

// The same in two kernels, for many rows and few weights.
template <int PER, int IN, int OUT, int PARTS>
DEVICE void dense_backward_weights_parts(const float* x, const float* dz, float* parts, bool has_bias, int rows) {
    SHARED(Tiles<PER>, tiles);
    float sums[PER][PER] = {};
    const int inputs = has_bias ? IN + 1 : IN;
    const Share share = share_of(rows, PARTS);
    multiply<PER, 1, IN, OUT, 1>(x, dz, inputs, OUT, IN, share.begin, share.end, tiles, sums);
    float* mine = parts + (long long)blockIdx.z * inputs * OUT;
    each_result<PER>(sums, inputs, OUT, [&](int row, int column, float sum) { mine[row * OUT + column] = sum; });
}

template <int IN, int OUT, int PARTS>
DEVICE void dense_backward_weights_sum(const float* parts, const float* kernel, const float* bias, float* dkernel,
                                       float* dbias, Penalties by) {
    const int i = blockIdx.x * THREADS + threadIdx.x, results = (dbias ? IN + 1 : IN) * OUT;
    if (i >= results) return;
    float sum = 0.0f;
    for (int part = 0; part < PARTS; part++) sum += parts[(long long)part * results + i];
    store_gradient<IN, OUT>(i / OUT, i % OUT, sum, kernel, bias, dkernel, dbias, by);
}
