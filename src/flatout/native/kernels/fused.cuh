// Dense, activation, Dense, softmax cross-entropy and the optimizer for a whole chunk of steps, in one cluster of blocks.
//
// Each block owns UNITS = HIDDEN / CLUSTER hidden units: their columns of the first kernel, their rows of the second, and the
// optimizer's state of both; the first kernel and its state stay in registers from the first step to the last. Each block also owns
// BATCH / CLUSTER rows of the batch for the softmax. Two exchanges a step: partial logits go to the rows' owners, gradients of the
// logits come back to everybody. Rows of the next batch are fetched through the order, each by its owner for all.
//
// With 8 units a block half of a matrix tile would be empty: hi goes into its upper rows and lo into the lower ones, and the
// split costs no instruction (PACKED). With a multiple of 16 units hi and lo are multiplied one after the other.

template <class C> struct FusedSizes {
    static constexpr int UNITS = C::HIDDEN / C::CLUSTER;
    static constexpr bool PACKED = UNITS == 8;
    static constexpr int HALVES = PACKED ? 1 : 2;      // used halves of a 16-row tile of units
    static constexpr int UNIT_TILES = UNITS / (8 * HALVES);
    static constexpr int EIGHTS = UNITS / 8;
    static constexpr int PER_HALF = 2 * HALVES;   // parameters of a thread in 8 features of a tile
    static constexpr int PER_TILE = 2 * PER_HALF;
    static constexpr int TILES = C::FEATURE_TILES / C::WARPS;           // of 16 features, for each warp
    static constexpr int EXTRA = C::FEATURE_TILES - TILES * C::WARPS;   // one more each for warps 0, 4, 5, ...
    static constexpr int SLOTS = TILES + 1;       // the last: such a tile, or (warps 1 to 3) bias, bias, second kernel
    static constexpr int ROWS = C::BATCH / C::CLUSTER;
    static constexpr int ROW_TILES = C::BATCH / 8;
    static constexpr int STEPS_OF_K = C::BATCH / 16;
    static constexpr int ROW_HALVES = C::PLANES * C::FEATURE_TILES * 16;
    static constexpr int ROW_COPY = 2 * ROW_HALVES;
    static constexpr int ROW_BYTES = ROW_COPY + 16;  // no two of eight rows begin in the same banks
    static constexpr int PLANE = C::FEATURE_TILES * 32;
    static constexpr int STRIDE = C::OUTPUTS <= 12 ? 12 : 20;  // of a row of outputs
    static constexpr int SWIZZLE = ROW_TILES < 4 ? ROW_TILES - 1 : 3;
    static constexpr int SOFTMAX_WARPS = C::WARPS < 8 ? C::WARPS : 8;
    static constexpr int ROWS_AT_ONCE = ROWS < SOFTMAX_WARPS ? ROWS : SOFTMAX_WARPS;
    static constexpr int PASSES = ROWS / ROWS_AT_ONCE;
    static constexpr int GROUPS = SOFTMAX_WARPS / ROWS_AT_ONCE;  // warps that share a row; each serves some blocks
    static constexpr int EXCHANGED = C::BATCH * C::OUTPUTS * 4;

    static_assert(PACKED || UNITS % 16 == 0, "8 units a block, or a multiple of 16");
    static_assert(TILES >= 1 && EXTRA <= C::WARPS - 3, "tiles for every warp, and no more than they have slots");
    static_assert(C::WARPS % 4 == 0 && ROW_TILES <= C::WARPS, "warps for the rows");
    static_assert(C::OUTPUTS <= 16 && ROWS <= 32 && ROWS * C::CLUSTER == C::BATCH, "rows and outputs");
};

template <class C> struct FusedShared {
    typedef FusedSizes<C> S;
    alignas(128) char x[2][C::BATCH * S::ROW_BYTES];    // this batch and the next
    float partial[C::WARPS][S::UNITS * C::BATCH];       // forward sums, one slab a warp
    float logits[2][C::BATCH * C::OUTPUTS];             // partial logits received for this block's rows
    u32 hidden[S::UNITS * C::BATCH];                    // words {hi, lo}
    float slope[S::UNITS * C::BATCH];                   // of the activation
    u32 dlogits[C::BATCH * S::STRIDE];                  // of all rows, received
    u32 dh[S::ROW_TILES][32][2 * S::EIGHTS];            // gradient of the hidden units as fragments, hi and lo of a lane
    u32 w2[S::UNITS * S::STRIDE];
    float b1[S::UNITS];
    float b2[2][16];
    u32 failed[C::CLUSTER * C::WARPS];
    alignas(8) u64 arrivals[4];                         // logits, dlogits, x[0], x[1]
};

// Where unit and row lie in a UNITS x BATCH array: rows of eight are permuted, to spread them over the banks.
template <class C> DEVICE int at_unit(int unit, int tile, int row) {
    return unit * C::BATCH + ((tile ^ (unit & FusedSizes<C>::SWIZZLE)) << 3) + row;
}

// Which parameter is in a register: an offset in the arena, or -1. `storing`: only for one of the threads that hold it.
template <class C> DEVICE int fused_offset(int u, int slot, int half, int e, int warp, int lane, int rank, bool storing) {
    typedef FusedSizes<C> S;
    const int g = lane >> 2, t = lane & 3;
    const int unit = rank * S::UNITS + 16 * u + g + 8 * (e >> 1);
    const int extra = warp == 0 ? 0 : warp - 3;
    if (slot < S::TILES || (extra >= 0 && extra < S::EXTRA && (warp == 0 || warp > 3))) {
        const int tile = slot < S::TILES ? S::TILES * warp + slot : S::TILES * C::WARPS + extra;
        const int feature = 16 * tile + 8 * half + 2 * t + (e & 1);
        return feature < C::INPUTS ? C::AT_W1 + feature * C::HIDDEN + unit : -1;
    }
    if (warp == 1) return half == 0 && (e & 1) == 0 && (!storing || t == 0) ? C::AT_B1 + unit : -1;
    if (warp == 2) {
        const int output = e < 2 ? 8 * half + 4 * e + t : C::OUTPUTS;
        return u == 0 && output < C::OUTPUTS && (!storing || (g == 0 && rank == 0)) ? C::AT_B2 + output : -1;
    }
    if (warp == 3) {
        const int output = 8 * half + 2 * t + (e & 1);
        return output < C::OUTPUTS ? C::AT_W2 + unit * C::OUTPUTS + output : -1;
    }
    return -1;
}

// The gradient of 16 features of the first kernel, and of the second one: sums of hi and of lo products.
template <class C> struct FusedSum {
    typedef FusedSizes<C> S;
    static constexpr int PARTS = S::PACKED || !C::EXACT ? 1 : 2;
    float c[PARTS][8];

    DEVICE_MEMBER void clear() {
        UNROLL
        for (int p = 0; p < PARTS; p++) {
            UNROLL
            for (int i = 0; i < 8; i++) c[p][i] = 0.0f;
        }
    }
    // Left operand hi (PACKED: hi and lo) and lo; right operand in two times eight columns, `is_lo` itself.
    DEVICE_MEMBER void add(const u32* hi, const u32* lo, const u32* right, bool is_lo) {
        multiply_tiles(c[0], hi, right[0], right[1]);
        multiply_tiles(c[0] + 4, hi, right[2], right[3]);
        if constexpr (PARTS == 2)
            if (!is_lo) {
                multiply_tiles(c[1], lo, right[0], right[1]);
                multiply_tiles(c[1] + 4, lo, right[2], right[3]);
            }
    }
    DEVICE_MEMBER void join(float* out) const {
        if constexpr (S::PACKED) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int at = (i >> 1) * 4 + (i & 1);
                out[i] = C::EXACT ? fmaf(c[0][at + 2], LO_INVERSE, c[0][at]) : c[0][at];
            }
        } else {
            UNROLL
            for (int i = 0; i < 8; i++) out[i] = C::EXACT ? fmaf(c[PARTS - 1][i], LO_INVERSE, c[0][i]) : c[0][i];
        }
    }
};

// planes    rows of x as halves: PLANES times FEATURE_TILES * 16, in units of numbers[0]
// span      where in the order the first step begins, and the number of steps
// scalars   learning rate and Adam's corrected one of each step
// slot_0, slot_1  the optimizer's variables, as far as it has them
// row_sums  loss of each row and whether it was right, of each step
// failed    becomes 1 if a number left the range of halves: then nothing else was written
template <class C, class Label>
DEVICE void fused_train(const u16* planes, const Label* labels, const int* order, const int* span, const float* scalars,
                        const float* numbers, float* weights, float* slot_0, float* slot_1, float* row_sums, int* failed) {
    typedef FusedSizes<C> S;
    constexpr int FETCHER = C::WARPS - 1;
    CLUSTER_SHARED(FusedShared<C>, sm);
    static_assert(sizeof(FusedShared<C>) <= C::SHARED_BYTES, "shared memory as the host allots it");
    const int thread = thread_number(), warp = thread >> 5, lane = thread & 31;
    const int g = lane >> 2, t = lane & 3;  // row and column group of a fragment
    const int rank = cluster_rank(), steps = span[1];
    const float x_unit = numbers[0], h_unit = x_unit * (1.0f / W_SCALE);
    order += span[0];
    const Address logits_ready = shared_address(&sm.arrivals[0]), dlogits_ready = shared_address(&sm.arrivals[1]);
    const Address x_ready = shared_address(&sm.arrivals[2]), x_first = shared_address(sm.x[0]);
    bool bad = false;

    // ---- state into registers. The gradient's fragment has the same map of threads to elements as the weight's fragment.
    const int extra = warp == 0 ? 0 : warp - 3;
    const bool has_extra = S::EXTRA > 0 && (warp == 0 || warp > 3) && extra < S::EXTRA;
    const FusedStep<C> of_tiles = FusedStep<C>::make(x_unit, W_SCALE);
    const FusedStep<C> of_role = has_extra ? of_tiles : FusedStep<C>::make(1.0f, 1.0f);
    const float role_scale = has_extra ? W_SCALE : 1.0f;
    float W[S::UNIT_TILES][S::SLOTS][S::PER_TILE], M[S::UNIT_TILES][S::SLOTS][S::PER_TILE];
    float V[S::UNIT_TILES][S::SLOTS][S::PER_TILE];
    UNROLL
    for (int u = 0; u < S::UNIT_TILES; u++) {
        UNROLL
        for (int p = 0; p < S::SLOTS; p++) {
            UNROLL
            for (int i = 0; i < S::PER_TILE; i++) {
                const int at = fused_offset<C>(u, p, i / S::PER_HALF, i % S::PER_HALF, warp, lane, rank, false);
                const FusedStep<C>& step = p < S::TILES ? of_tiles : of_role;
                W[u][p][i] = at >= 0 ? weights[at] * (p < S::TILES ? W_SCALE : role_scale) : 0.0f;
                M[u][p][i] = C::SLOTS > 0 && at >= 0 ? slot_0[at] * step.m_scale : 0.0f;
                V[u][p][i] = C::SLOTS > 1 && at >= 0 ? slot_1[at] * step.v_scale : 0.0f;
                // Adam's shared reciprocal: a single denominator must leave room for three others.
                bad |= !(fabsf(M[u][p][i]) <= 1e30f) || !(V[u][p][i] >= 0.0f && V[u][p][i] <= 1e24f);
            }
        }
    }
    for (int i = thread; i < S::UNITS * S::STRIDE; i += C::WARPS * 32) {
        const int unit = i / S::STRIDE, output = i % S::STRIDE;
        const int at = C::AT_W2 + (rank * S::UNITS + unit) * C::OUTPUTS + output;
        sm.w2[i] = output < C::OUTPUTS ? split_word<C::EXACT>(weights[at]) : 0;
    }
    for (int i = thread; i < C::BATCH * S::STRIDE; i += C::WARPS * 32) sm.dlogits[i] = 0;
    if (thread < S::UNITS) sm.b1[thread] = weights[C::AT_B1 + rank * S::UNITS + thread];
    if (thread < C::OUTPUTS) sm.b2[0][thread] = weights[C::AT_B2 + thread];
    if (thread == 0) {
        for (int i = 0; i < 4; i++) arrival_init(shared_address(&sm.arrivals[i]));
        arrival_init_done();
    }
    block_barrier();

    // ---- the first batch: each block loads all rows for itself; later ones come from their owners
    if (warp == FETCHER && steps > 0) {
        if (lane == 0) arrival_expect(x_ready, C::BATCH * S::ROW_COPY);
        warp_barrier();
        for (int row = lane; row < C::BATCH; row += 32)
            copy_here(x_first + row * S::ROW_BYTES, planes + (size_t)order[row] * S::ROW_HALVES, S::ROW_COPY, x_ready);
    }
    const int group = (warp % S::SOFTMAX_WARPS) / S::ROWS_AT_ONCE;
    const int first_own = rank * S::ROWS + warp % S::ROWS_AT_ONCE;
    int next_label[S::PASSES], next_label_row[S::PASSES];
    UNROLL
    for (int pass = 0; pass < S::PASSES; pass++) {
        const int row = first_own + pass * S::ROWS_AT_ONCE;
        next_label[pass] = steps > 0 ? (int)(float)labels[order[row]] : 0;
        next_label_row[pass] = steps > 0 ? order[(steps > 1 ? C::BATCH : 0) + row] : 0;
    }
    const int fetched = rank * S::ROWS + lane % S::ROWS;
    int next_x_row = steps > 1 ? order[C::BATCH + fetched] : 0;
    float next_rate = steps > 0 ? scalars[C::RATE] : 0.0f;
    cluster_barrier();  // every arrival barrier exists before the first byte comes from elsewhere

    NO_UNROLL
    for (int s = 0; s < steps; s++) {
        const int slot = s & 1, parity = s >> 1 & 1;
        // Labels, row numbers and rate were read one or two steps ahead.
        int label[S::PASSES];
        const int later = s + 2 < steps ? s + 2 : steps - 1;
        UNROLL
        for (int pass = 0; pass < S::PASSES; pass++) {
            label[pass] = next_label[pass];
            next_label[pass] = (int)(float)labels[next_label_row[pass]];
            next_label_row[pass] = order[(size_t)later * C::BATCH + first_own + pass * S::ROWS_AT_ONCE];
        }
        const int x_row = next_x_row;
        if (warp == FETCHER) next_x_row = order[(size_t)later * C::BATCH + fetched];
        const float rate = next_rate;
        next_rate = scalars[2 * (s + 1 < steps ? s + 1 : s) + C::RATE];
        if (thread == 0) {
            arrival_expect(logits_ready, S::EXCHANGED);
            arrival_expect(dlogits_ready, S::EXCHANGED);
        }
        u32 packed[S::PACKED ? S::SLOTS : 1][4];
        if constexpr (S::PACKED) {
            UNROLL
            for (int p = 0; p < S::SLOTS; p++) {
                split_pair<C::EXACT>(W[0][p][0], W[0][p][1], 1.0f, packed[p][0], packed[p][1]);
                split_pair<C::EXACT>(W[0][p][2], W[0][p][3], 1.0f, packed[p][2], packed[p][3]);
            }
        }
        arrival_wait(x_ready + 8 * slot, parity);

        // ---- forward: sums over this warp's features, UNITS x BATCH
        const Address x_here = x_first + slot * (C::BATCH * S::ROW_BYTES);
        const Address forward_row = x_here + ((lane & 7) + ((lane >> 4) << 3)) * S::ROW_BYTES + ((lane >> 3) & 1) * 16;
        const Address backward_row = x_here + (lane & 15) * S::ROW_BYTES + (lane >> 4) * 16;
        constexpr int PARTS = S::PACKED || !C::EXACT ? 1 : 2;
        float acc[S::UNIT_TILES][PARTS][S::ROW_TILES][4];
        UNROLL
        for (int u = 0; u < S::UNIT_TILES; u++) {
            UNROLL
            for (int part = 0; part < PARTS; part++) {
                UNROLL
                for (int j = 0; j < S::ROW_TILES; j++)
                    acc[u][part][j][0] = acc[u][part][j][1] = acc[u][part][j][2] = acc[u][part][j][3] = 0.0f;
            }
        }
        UNROLL
        for (int p = 0; p < S::SLOTS; p++)
            if (p < S::TILES || has_extra) {
                const Address column = forward_row + 32 * (p < S::TILES ? S::TILES * warp + p : S::TILES * C::WARPS + extra);
                u32 hi[S::UNIT_TILES][4], lo[S::UNIT_TILES][4];
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) {
                    if constexpr (S::PACKED) {
                        UNROLL
                        for (int i = 0; i < 4; i++) hi[u][i] = packed[p][i];
                    } else {
                        constexpr int H = S::PER_HALF;
                        split_pair<C::EXACT>(W[u][p][0], W[u][p][1], 1.0f, hi[u][0], lo[u][0]);
                        split_pair<C::EXACT>(W[u][p][H - 2], W[u][p][H - 1], 1.0f, hi[u][1], lo[u][1]);
                        split_pair<C::EXACT>(W[u][p][H], W[u][p][H + 1], 1.0f, hi[u][2], lo[u][2]);
                        split_pair<C::EXACT>(W[u][p][2 * H - 2], W[u][p][2 * H - 1], 1.0f, hi[u][3], lo[u][3]);
                    }
                }
                UNROLL
                for (int plane = 0; plane < C::PLANES; plane++) {
                    UNROLL
                    for (int k = 0; k < S::STEPS_OF_K; k++) {
                        u32 right[4];
                        load_tiles(right, column + plane * S::PLANE + 16 * k * S::ROW_BYTES);
                        UNROLL
                        for (int u = 0; u < S::UNIT_TILES; u++) {
                            multiply_tiles(acc[u][0][2 * k], hi[u], right[0], right[1]);
                            multiply_tiles(acc[u][0][2 * k + 1], hi[u], right[2], right[3]);
                            if constexpr (PARTS == 2)
                                if (plane == 0) {
                                    multiply_tiles(acc[u][PARTS - 1][2 * k], lo[u], right[0], right[1]);
                                    multiply_tiles(acc[u][PARTS - 1][2 * k + 1], lo[u], right[2], right[3]);
                                }
                        }
                    }
                }
            }
        UNROLL
        for (int u = 0; u < S::UNIT_TILES; u++) {
            UNROLL
            for (int j = 0; j < S::ROW_TILES; j++) {
                const float *main = acc[u][0][j], *rest = acc[u][PARTS - 1][j];
                float* upper = &sm.partial[warp][at_unit<C>(16 * u + g, j, 2 * t)];
                if constexpr (S::PACKED) {
                    store_two(upper, C::EXACT ? main[0] + main[2] : main[0], C::EXACT ? main[1] + main[3] : main[1]);
                } else {
                    float* lower = &sm.partial[warp][at_unit<C>(16 * u + g + 8, j, 2 * t)];
                    store_two(upper, PARTS == 2 ? main[0] + rest[0] : main[0], PARTS == 2 ? main[1] + rest[1] : main[1]);
                    store_two(lower, PARTS == 2 ? main[2] + rest[2] : main[2], PARTS == 2 ? main[3] + rest[3] : main[3]);
                }
            }
        }
        block_barrier();

        // ---- a warp for every eight rows ends the hidden units, forms partial logits and pushes them to the rows' owners
        u32 w2_hi[S::UNIT_TILES][4], w2_lo[S::UNIT_TILES][4];
        if (warp < S::ROW_TILES) {
            float h[2 * S::EIGHTS];
            u32 h_hi[S::EIGHTS], h_lo[S::EIGHTS], a_hi[2 * S::EIGHTS], a_lo[2 * S::EIGHTS];
            UNROLL
            for (int k = 0; k < S::EIGHTS; k++) {  // the second kernel as left operand: outputs g, g + 8; units t, t + 4 (+ 8 k)
                const u32* first = sm.w2 + (t + 8 * k) * S::STRIDE + g;
                const u32 q0 = g < C::OUTPUTS ? first[0] : 0, q1 = g < C::OUTPUTS ? first[4 * S::STRIDE] : 0;
                const bool second = g + 8 < C::OUTPUTS;
                const u32 q2 = second ? first[8] : 0, q3 = second ? first[4 * S::STRIDE + 8] : 0;
                a_hi[2 * k] = low_halves(q0, q1);
                a_lo[2 * k] = high_halves(q0, q1);
                a_hi[2 * k + 1] = low_halves(q2, q3);
                a_lo[2 * k + 1] = high_halves(q2, q3);
            }
            UNROLL
            for (int k = 0; k < 2 * S::EIGHTS; k++) {
                const int unit = t + 4 * k, at = at_unit<C>(unit, warp, g);
                float even = sm.partial[0][at], odd = sm.partial[1][at];
                UNROLL
                for (int i = 2; i < C::WARPS; i += 2) {
                    even += sm.partial[i][at];
                    odd += sm.partial[i + 1][at];
                }
                const float z = fmaf(even + odd, h_unit, sm.b1[unit]);
                h[k] = C::Activation::value(z);
                sm.slope[at] = C::Activation::slope(z, h[k]);
                // A first kernel beyond the halves makes z infinite or NaN, even where x is 0.
                bad |= is_outside(z) || is_outside(h[k]);
            }
            UNROLL
            for (int k = 0; k < S::EIGHTS; k++) split_pair<C::EXACT>(h[2 * k], h[2 * k + 1], LO, h_hi[k], h_lo[k]);
            float c[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0};
            if constexpr (S::PACKED) {
                const u32 main[4] = {a_hi[0], a_hi[1], 0, 0}, cross[4] = {a_lo[0], a_lo[1], a_hi[0], a_hi[1]};
                multiply_tiles(c, main, h_hi[0], h_lo[0]);
                if constexpr (C::EXACT) multiply_tiles(d, cross, h_hi[0], h_lo[0]);
            } else {
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) {
                    multiply_tiles(c, a_hi + 4 * u, h_hi[2 * u], h_hi[2 * u + 1]);
                    if constexpr (C::EXACT) {
                        multiply_tiles(d, a_lo + 4 * u, h_hi[2 * u], h_hi[2 * u + 1]);
                        multiply_tiles(d, a_hi + 4 * u, h_lo[2 * u], h_lo[2 * u + 1]);
                    }
                }
            }
            UNROLL
            for (int half = 0; half < 2; half++) {
                const int output = g + 8 * half, row = 8 * warp + 2 * t;
                if (output < C::OUTPUTS) {
                    const u32 z0 = bits_of(fmaf(d[2 * half], LO_INVERSE, c[2 * half]));
                    const u32 z1 = bits_of(fmaf(d[2 * half + 1], LO_INVERSE, c[2 * half + 1]));
                    const Address here = shared_address(sm.logits[slot]) + (rank * C::OUTPUTS + output) * (S::ROWS * 4);
                    if constexpr (S::ROWS > 1) {
                        const int owner = row / S::ROWS;
                        push_pair(remote(here + row % S::ROWS * 4, owner), z0, z1, remote(logits_ready, owner));
                    } else {
                        push(remote(here, row), z0, remote(logits_ready, row));
                        push(remote(here, row + 1), z1, remote(logits_ready, row + 1));
                    }
                }
            }
            UNROLL
            for (int k = 0; k < 2 * S::EIGHTS; k++)
                sm.hidden[at_unit<C>(t + 4 * k, warp, g)] =
                    (k & 1) ? high_halves(h_hi[k >> 1], h_lo[k >> 1]) : low_halves(h_hi[k >> 1], h_lo[k >> 1]);
            warp_barrier();  // the slopes are read by other lanes of this warp
            // The second kernel as left operand of the hidden units' gradient, while the logits are on their way.
            // Slots of k: outputs t, t + 4, t + 8, t + 12.
            UNROLL
            for (int n = 0; n < S::EIGHTS; n++) {
                const int u = n / S::HALVES, k = n % S::HALVES;
                const u32* line = sm.w2 + (g + 8 * n) * S::STRIDE + t;
                const u32 q0 = line[0], q1 = line[4], q2 = line[8], q3 = C::OUTPUTS > 12 ? line[12] : 0;
                if constexpr (S::PACKED) {
                    w2_hi[u][0] = w2_lo[u][1] = low_halves(q0, q1);
                    w2_hi[u][1] = high_halves(q0, q1);
                    w2_hi[u][2] = w2_lo[u][3] = low_halves(q2, q3);
                    w2_hi[u][3] = high_halves(q2, q3);
                    w2_lo[u][0] = w2_lo[u][2] = 0;
                } else {
                    w2_hi[u][k] = low_halves(q0, q1);
                    w2_lo[u][k] = high_halves(q0, q1);
                    w2_hi[u][2 + k] = low_halves(q2, q3);
                    w2_lo[u][2 + k] = high_halves(q2, q3);
                }
            }
        }

        // ---- softmax: a row a warp, an output a lane; gradients pushed to every block
        if (warp < S::SOFTMAX_WARPS) {
            arrival_wait(logits_ready, slot);
            const int output = lane < C::OUTPUTS ? lane : C::OUTPUTS - 1;
            UNROLL
            for (int pass = 0; pass < S::PASSES; pass++) {
                const int own = warp % S::ROWS_AT_ONCE + pass * S::ROWS_AT_ONCE, row = rank * S::ROWS + own;
                const float* part = sm.logits[slot] + output * S::ROWS + own;
                float sums[4] = {sm.b2[slot][output], 0, 0, 0};
                UNROLL
                for (int i = 0; i < C::CLUSTER; i++) sums[i & 3] += part[i * C::OUTPUTS * S::ROWS];
                float z = (sums[0] + sums[1]) + (sums[2] + sums[3]);
                bad |= !(fabsf(z) <= 1e30f);
                z = lane < C::OUTPUTS ? z : -1e30f;
                // An image of a float among the integers that keeps the order.
                int image = (int)bits_of(z);
                image ^= (image >> 31) & 0x7fffffff;
                int most = warp_max(image);
                most ^= (most >> 31) & 0x7fffffff;
                const float largest = float_of((u32)most);
                const float power = fast_exp2((z - largest) * 1.44269504f);
                // In fixed point, so that the order does not matter.
                const float sum = (float)warp_sum(round_to_int(power * 67108864.0f)) * (1.0f / 67108864.0f);
                const float inverse = fast_reciprocal(sum);
                float dz = fmaf(power, inverse * LOGIT_SCALE, lane == label[pass] ? -LOGIT_SCALE : 0.0f);
                float q = 0.5f;
                if constexpr (C::CLIPPED) {  // Keras clips probabilities, and a clipped one has no gradient
                    q = from_lane(power, label[pass]) * inverse;
                    if (!(q >= C::CLIP && q <= 1.0f - C::CLIP)) dz = 0.0f;
                }
                const u32 word = split_word<C::EXACT>(dz);
                const Address here = shared_address(sm.dlogits) + (row * S::STRIDE + output) * 4;
                UNROLL
                for (int i = 0; i < C::CLUSTER / S::GROUPS; i++) {
                    const int block = group + i * S::GROUPS;
                    if (lane < C::OUTPUTS) push(remote(here, block), word, remote(dlogits_ready, block));
                }
                const u32 right = warp_ballot(lane < C::OUTPUTS && z == largest);
                if (group == 0 && lane == label[pass]) {
                    float loss = logf(sum) - (z - largest);
                    if constexpr (C::CLIPPED) {
                        if (q < C::CLIP) loss = -logf(C::CLIP);
                        if (q > 1.0f - C::CLIP) loss = -logf(1.0f - C::CLIP);
                    }
                    float* sums_of_row = row_sums + 2 * ((size_t)s * C::BATCH + row);
                    sums_of_row[0] = loss;
                    sums_of_row[1] = first_bit(right) == label[pass] ? 1.0f : 0.0f;
                }
            }
        }
        // All partial logits are here: every block is past its first barrier of this step, and the last batch is free.
        if (warp == FETCHER && s + 1 < steps) {
            if constexpr (C::WARPS > S::SOFTMAX_WARPS) arrival_wait(logits_ready, slot);
            if (lane == 0) arrival_expect(x_ready + 8 * (slot ^ 1), C::BATCH * S::ROW_COPY);
            if (lane < S::ROWS)
                copy_to_blocks(x_first + (slot ^ 1) * (C::BATCH * S::ROW_BYTES) + (rank * S::ROWS + lane) * S::ROW_BYTES,
                               planes + (size_t)x_row * S::ROW_HALVES, S::ROW_COPY, x_ready + 8 * (slot ^ 1),
                               (u16)((1u << C::CLUSTER) - 1));
            if constexpr (C::PREFETCH)
                if (lane < S::ROWS && s + 2 < steps) prefetch(planes + (size_t)next_x_row * S::ROW_HALVES, S::ROW_COPY);
            warp_barrier();
        }

        // ---- gradient of the hidden units, as a left operand: eight rows a warp
        if (warp < S::ROW_TILES) {
            arrival_wait(dlogits_ready, slot);
            const u32* line = sm.dlogits + (8 * warp + g) * S::STRIDE + t;
            const u32 d0 = line[0], d1 = line[4], d2 = line[8], d3 = C::OUTPUTS > 12 ? line[12] : 0;
            UNROLL
            for (int u = 0; u < S::UNIT_TILES; u++) {
                float c[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
                multiply_tiles(c, w2_hi[u], low_halves(d0, d1), low_halves(d2, d3));
                if constexpr (C::EXACT && !S::PACKED) multiply_tiles(e, w2_lo[u], low_halves(d0, d1), low_halves(d2, d3));
                if constexpr (C::EXACT)
                    multiply_tiles(e, S::PACKED ? w2_lo[u] : w2_hi[u], high_halves(d0, d1), high_halves(d2, d3));
                UNROLL
                for (int k = 0; k < S::HALVES; k++) {
                    float v0, v1, slope_0, slope_1;
                    load_two(&sm.slope[at_unit<C>(16 * u + g + 8 * k, warp, 2 * t)], slope_0, slope_1);
                    if constexpr (S::PACKED) {
                        v0 = C::EXACT ? fmaf(c[2] + e[2], LO_INVERSE, c[0]) : c[0];
                        v1 = C::EXACT ? fmaf(c[3] + e[3], LO_INVERSE, c[1]) : c[1];
                    } else {
                        v0 = C::EXACT ? fmaf(e[2 * k], LO_INVERSE, c[2 * k]) : c[2 * k];
                        v1 = C::EXACT ? fmaf(e[2 * k + 1], LO_INVERSE, c[2 * k + 1]) : c[2 * k + 1];
                    }
                    v0 *= slope_0;
                    v1 *= slope_1;
                    bad |= is_outside(v0) || is_outside(v1);
                    u32 hi, lo;
                    split_pair<C::EXACT>(v0, v1, LO, hi, lo);
                    store_two(&sm.dh[warp][lane][2 * (S::HALVES * u + k)], hi, lo);
                }
            }
        }
        block_barrier();
        u32 dh_hi[S::UNIT_TILES][S::STEPS_OF_K][4], dh_lo[S::UNIT_TILES][S::STEPS_OF_K][4];  // PACKED: dh_hi has both
        UNROLL
        for (int u = 0; u < S::UNIT_TILES; u++) {
            UNROLL
            for (int j = 0; j < S::ROW_TILES; j++) {
                const u32* of_lane = &sm.dh[j][lane][2 * S::HALVES * u];
                const int k = j >> 1, i = (j & 1) * 2;
                if constexpr (S::PACKED) {
                    load_two(of_lane, dh_hi[u][k][i], dh_hi[u][k][i + 1]);
                    dh_lo[u][k][i] = dh_lo[u][k][i + 1] = 0;
                } else {
                    load_two(of_lane, dh_hi[u][k][i], dh_lo[u][k][i]);
                    load_two(of_lane + 2 * S::HALVES - 2, dh_hi[u][k][i + 1], dh_lo[u][k][i + 1]);
                }
            }
        }

        // ---- gradients of the last slot
        float role[S::UNIT_TILES][S::PER_TILE];
        UNROLL
        for (int u = 0; u < S::UNIT_TILES; u++) {
            UNROLL
            for (int i = 0; i < S::PER_TILE; i++) role[u][i] = 0.0f;
        }
        if (has_extra) {
            FusedSum<C> sums[S::UNIT_TILES];
            UNROLL
            for (int u = 0; u < S::UNIT_TILES; u++) sums[u].clear();
            UNROLL
            for (int plane = 0; plane < C::PLANES; plane++) {
                UNROLL
                for (int k = 0; k < S::STEPS_OF_K; k++) {
                    u32 right[4];
                    load_tiles_transposed(right, backward_row + 32 * (S::TILES * C::WARPS + extra) + plane * S::PLANE +
                                                     16 * k * S::ROW_BYTES);
                    UNROLL
                    for (int u = 0; u < S::UNIT_TILES; u++) sums[u].add(dh_hi[u][k], dh_lo[u][k], right, plane == 1);
                }
            }
            UNROLL
            for (int u = 0; u < S::UNIT_TILES; u++) sums[u].join(role[u]);
        } else if (warp == 1) {  // first bias: over the rows
            UNROLL
            for (int n = 0; n < S::EIGHTS; n++) {
                const int u = n / S::HALVES, r = n % S::HALVES;
                float v = 0.0f;
                UNROLL
                for (int k = 0; k < S::STEPS_OF_K; k++) {
                    UNROLL
                    for (int i = 0; i < 4; i += 2) {
                        const u32 hi = S::PACKED ? dh_hi[u][k][i] : dh_hi[u][k][i + r];
                        const u32 lo = S::PACKED ? dh_hi[u][k][i + 1] : dh_lo[u][k][i + r];
                        v += join_word(low_halves(hi, lo)) + join_word(high_halves(hi, lo));
                    }
                }
                v += from_lane_xor(v, 1);
                v += from_lane_xor(v, 2);
                role[u][2 * r] = v;
            }
        } else if (warp == 2) {  // second bias
            UNROLL
            for (int r = 0; r < 4; r++) {
                float v = 0.0f;
                if (4 * r < C::OUTPUTS) {
                    UNROLL
                    for (int j = 0; j < S::ROW_TILES; j++) v += join_word(sm.dlogits[(8 * j + g) * S::STRIDE + t + 4 * r]);
                    v += from_lane_xor(v, 4);
                    v += from_lane_xor(v, 8);
                    v += from_lane_xor(v, 16);
                }
                role[0][(r >> 1) * S::PER_HALF + (r & 1)] = v;
            }
        } else if (warp == 3) {  // second kernel
            FusedSum<C> sums[S::UNIT_TILES];
            UNROLL
            for (int u = 0; u < S::UNIT_TILES; u++) sums[u].clear();
            UNROLL
            for (int k = 0; k < S::STEPS_OF_K; k++) {
                u32 right_hi[4], right_lo[4];
                UNROLL
                for (int i = 0; i < 2; i++) {
                    const u32* line = sm.dlogits + (16 * k + 8 * i + 2 * t) * S::STRIDE + g;
                    const bool first = g < C::OUTPUTS, second = g + 8 < C::OUTPUTS;
                    const u32 p0 = first ? line[0] : 0, p1 = first ? line[S::STRIDE] : 0;
                    const u32 q0 = second ? line[8] : 0, q1 = second ? line[S::STRIDE + 8] : 0;
                    right_hi[i] = low_halves(p0, p1);
                    right_lo[i] = high_halves(p0, p1);
                    right_hi[2 + i] = low_halves(q0, q1);
                    right_lo[2 + i] = high_halves(q0, q1);
                }
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) {
                    u32 hi[4], lo[4];
                    UNROLL
                    for (int i = 0; i < 2; i++) {
                        u32 h0, h1;
                        load_two(&sm.hidden[at_unit<C>(16 * u + g, 2 * k + i, 2 * t)], h0, h1);
                        hi[2 * i] = low_halves(h0, h1);
                        if constexpr (S::PACKED) {
                            hi[2 * i + 1] = high_halves(h0, h1);
                            lo[2 * i] = 0;
                            lo[2 * i + 1] = hi[2 * i];
                        } else {
                            lo[2 * i] = high_halves(h0, h1);
                            load_two(&sm.hidden[at_unit<C>(16 * u + g + 8, 2 * k + i, 2 * t)], h0, h1);
                            hi[2 * i + 1] = low_halves(h0, h1);
                            lo[2 * i + 1] = high_halves(h0, h1);
                        }
                    }
                    sums[u].add(hi, lo, right_hi, false);
                    if constexpr (C::EXACT && S::PACKED) sums[u].add(lo, lo, right_lo, true);
                    if constexpr (C::EXACT && !S::PACKED) {
                        multiply_tiles(sums[u].c[FusedSum<C>::PARTS - 1], hi, right_lo[0], right_lo[1]);
                        multiply_tiles(sums[u].c[FusedSum<C>::PARTS - 1] + 4, hi, right_lo[2], right_lo[3]);
                    }
                }
            }
            UNROLL
            for (int u = 0; u < S::UNIT_TILES; u++) sums[u].join(role[u]);
        }

        // ---- gradient of the first kernel, and the optimizer: some tiles at a time, so that loads, products and steps overlap
        UNROLL
        for (int first = 0; first < S::TILES; first += C::AT_ONCE) {
            FusedSum<C> sums[C::AT_ONCE][S::UNIT_TILES];
            UNROLL
            for (int i = 0; i < C::AT_ONCE; i++) {
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) sums[i][u].clear();
            }
            UNROLL
            for (int plane = 0; plane < C::PLANES; plane++) {
                UNROLL
                for (int k = 0; k < S::STEPS_OF_K; k++) {
                    UNROLL
                    for (int i = 0; i < C::AT_ONCE; i++)
                        if (first + i < S::TILES) {
                            u32 right[4];
                            load_tiles_transposed(right, backward_row + 32 * (S::TILES * warp + first + i) +
                                                             plane * S::PLANE + 16 * k * S::ROW_BYTES);
                            UNROLL
                            for (int u = 0; u < S::UNIT_TILES; u++)
                                sums[i][u].add(dh_hi[u][k], dh_lo[u][k], right, plane == 1);
                        }
                }
            }
            UNROLL
            for (int i = 0; i < C::AT_ONCE; i++)
                if (first + i < S::TILES) {
                    const int p = first + i;
                    UNROLL
                    for (int u = 0; u < S::UNIT_TILES; u++) {
                        float gradient[S::PER_TILE];
                        sums[i][u].join(gradient);
                        UNROLL
                        for (int q = 0; q < S::PER_TILE; q += 4)
                            of_tiles.four(W[u][p] + q, M[u][p] + q, V[u][p] + q, gradient + q, rate);
                    }
                }
            if (first == 0) {
                // Every warp steps its last slot, used or not: a branch would cost more.
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) {
                    UNROLL
                    for (int q = 0; q < S::PER_TILE; q += 4)
                        of_role.four(W[u][S::TILES] + q, M[u][S::TILES] + q, V[u][S::TILES] + q, role[u] + q, rate);
                    const float* now = W[u][S::TILES];
                    if (warp == 1 && t == 0) {
                        UNROLL
                        for (int r = 0; r < S::HALVES; r++) sm.b1[16 * u + g + 8 * r] = now[2 * r];
                    } else if (warp == 2 && g == 0 && u == 0) {
                        UNROLL
                        for (int r = 0; r < 4; r++)
                            if (t + 4 * r < C::OUTPUTS) sm.b2[slot ^ 1][t + 4 * r] = now[(r >> 1) * S::PER_HALF + (r & 1)];
                    } else if (warp == 3) {
                        UNROLL
                        for (int i = 0; i < S::PER_TILE; i++) {
                            const int e = i % S::PER_HALF, output = 8 * (i / S::PER_HALF) + 2 * t + (e & 1);
                            if (output < C::OUTPUTS)
                                sm.w2[(16 * u + g + 8 * (e >> 1)) * S::STRIDE + output] = split_word<C::EXACT>(now[i]);
                        }
                    }
                }
            }
        }
    }

    // ---- all blocks agree on whether every number stayed in range; only then is the state written
    const u32 seen = warp_ballot(bad);
    if (lane < C::CLUSTER) put(remote(shared_address(&sm.failed[rank * C::WARPS + warp]), lane), seen != 0);
    warp_barrier();  // the cluster's barrier wants a warp's lanes together
    cluster_barrier();  // and nobody writes to another block any more
    bool any = false;
    for (int i = lane; i < C::CLUSTER * C::WARPS; i += 32) any |= sm.failed[i] != 0;
    any = warp_ballot(any) != 0;
    if (rank == 0 && thread == 0) *failed = any;
    if (any) return;
    // Made anew, so that what only a launch's two ends need takes no registers in between.
    const FusedStep<C> tiles_step = FusedStep<C>::make(numbers[0], W_SCALE);
    const FusedStep<C> role_step = has_extra ? tiles_step : FusedStep<C>::make(1.0f, 1.0f);
    UNROLL
    for (int u = 0; u < S::UNIT_TILES; u++) {
        UNROLL
        for (int p = 0; p < S::SLOTS; p++) {
            UNROLL
            for (int i = 0; i < S::PER_TILE; i++) {
                const int at = fused_offset<C>(u, p, i / S::PER_HALF, i % S::PER_HALF, warp, lane, rank, true);
                const FusedStep<C>& step = p < S::TILES ? tiles_step : role_step;
                if (at >= 0) {
                    weights[at] = W[u][p][i] / (p < S::TILES ? W_SCALE : role_scale);
                    if (C::SLOTS > 0) slot_0[at] = M[u][p][i] / step.m_scale;
                    if (C::SLOTS > 1) slot_1[at] = V[u][p][i] / step.v_scale;
                }
            }
        }
    }
}
