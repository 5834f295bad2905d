// Dense, activation, Dense, softmax cross-entropy and the optimizer for a whole chunk of steps, in one cluster of blocks.
//
// Each block owns UNITS = HIDDEN / CLUSTER hidden units: their columns of the first kernel, their rows of the second, and the
// optimizer's state of both; the first kernel and its state stay in registers from the first step to the last. Each block also owns
// BATCH / CLUSTER rows of the batch for the softmax. Two exchanges a step: partial logits go to the rows' owners, gradients of the
// logits come back to everybody. Rows of the next batch are fetched through the order, each by its owner for all.
//
// With 8 units a block half of a matrix tile would be empty: hi goes into its upper rows and lo into the lower ones, and the
// split costs no instruction (PACKED). With a multiple of 16 units hi and lo are multiplied one after the other.

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
    const FusedPlace<C> me = FusedPlace<C>::here();
    const int thread = thread_number(), steps = span[1];
    const float x_unit = numbers[0], h_unit = x_unit * (1.0f / W_SCALE);
    order += span[0];
    const Address logits_ready = shared_address(&sm.arrivals[0]), dlogits_ready = shared_address(&sm.arrivals[1]);
    const Address x_ready = shared_address(&sm.arrivals[2]), x_first = shared_address(sm.x[0]);
    bool bad = false;

    // ---- state into registers. The gradient's fragment has the same map of threads to elements as the weight's fragment.
    const FusedStep<C> of_tiles = FusedStep<C>::make(x_unit, W_SCALE);
    const FusedStep<C> of_role = me.has_extra ? of_tiles : FusedStep<C>::make(1.0f, 1.0f);
    const float role_scale = me.has_extra ? W_SCALE : 1.0f;
    float W[S::UNIT_TILES][S::SLOTS][S::PER_TILE], M[S::UNIT_TILES][S::SLOTS][S::PER_TILE];
    float V[S::UNIT_TILES][S::SLOTS][S::PER_TILE];
    UNROLL
    for (int u = 0; u < S::UNIT_TILES; u++) {
        UNROLL
        for (int p = 0; p < S::SLOTS; p++) {
            UNROLL
            for (int i = 0; i < S::PER_TILE; i++) {
                const int at = fused_offset<C>(u, p, i / S::PER_HALF, i % S::PER_HALF, me, false);
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
        const int at = C::AT_W2 + (me.rank * S::UNITS + unit) * C::OUTPUTS + output;
        if constexpr (C::WIDTH < C::HIDDEN)
            if (is_padding<C>(me, unit)) {
                sm.w2[i] = 0;
                continue;
            }
        sm.w2[i] = output < C::OUTPUTS ? split_word<C::EXACT>(weights[at]) : 0;
    }
    for (int i = thread; i < C::BATCH * S::STRIDE; i += C::WARPS * 32) sm.dlogits[i] = 0;
    if constexpr (C::WIDTH < C::HIDDEN) {
        if (thread < S::UNITS) sm.b1[thread] = is_padding<C>(me, thread) ? 0.0f : weights[C::AT_B1 + me.rank * S::UNITS + thread];
    } else if (thread < S::UNITS) sm.b1[thread] = weights[C::AT_B1 + me.rank * S::UNITS + thread];
    if (thread < C::OUTPUTS) sm.b2[0][thread] = weights[C::AT_B2 + thread];
    if (thread == 0) {
        for (int i = 0; i < 4; i++) arrival_init(shared_address(&sm.arrivals[i]));
        arrival_init_done();
    }
    block_barrier();

    // ---- the first batch: each block loads all rows for itself; later ones come from their owners
    if (me.warp == FETCHER && steps > 0) {
        if (me.lane == 0) arrival_expect(x_ready, C::BATCH * S::ROW_COPY);
        warp_barrier();
        for (int row = me.lane; row < C::BATCH; row += 32)
            copy_here(x_first + row * S::ROW_BYTES, planes + (size_t)order[row] * S::ROW_HALVES, S::ROW_COPY, x_ready);
    }
    const int first_own = me.rank * S::ROWS + me.warp % S::ROWS_AT_ONCE;
    int next_label[S::PASSES], next_label_row[S::PASSES];
    UNROLL
    for (int pass = 0; pass < S::PASSES; pass++) {
        const int row = first_own + pass * S::ROWS_AT_ONCE;
        next_label[pass] = steps > 0 ? (int)(float)labels[order[row]] : 0;
        next_label_row[pass] = steps > 0 ? order[(steps > 1 ? C::BATCH : 0) + row] : 0;
    }
    const int fetched = me.rank * S::ROWS + me.lane % S::ROWS;
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
        if (me.warp == FETCHER) next_x_row = order[(size_t)later * C::BATCH + fetched];
        const float rate = next_rate;
        next_rate = scalars[2 * (s + 1 < steps ? s + 1 : s) + C::RATE];
        if (thread == 0) {
            arrival_expect(logits_ready, S::EXCHANGED);
            arrival_expect(dlogits_ready, S::EXCHANGED);
        }
        const Address x_here = x_first + slot * (C::BATCH * S::ROW_BYTES);
        const Address backward_row = x_here + (me.lane & 15) * S::ROW_BYTES + (me.lane >> 4) * 16;
        fused_forward<C>(sm, me, W, x_here, x_ready + 8 * slot, parity);
        cluster_arrive();  // this warp has read all it wants of the last batch
        block_barrier();
        u32 w2_hi[S::UNIT_TILES][4], w2_lo[S::UNIT_TILES][4];
        if (me.warp < S::ROW_TILES) fused_hidden<C>(sm, me, slot, h_unit, w2_hi, w2_lo, bad);
        cluster_wait();  // while the logits are on their way
        if (me.warp < S::SOFTMAX_WARPS) fused_softmax<C>(sm, me, slot, label, row_sums + (size_t)s * (2 * C::BATCH), bad);
        // All blocks have arrived: nobody reads the last batch any more.
        if (me.warp == FETCHER && s + 1 < steps) {
            if (me.lane == 0) arrival_expect(x_ready + 8 * (slot ^ 1), C::BATCH * S::ROW_COPY);
            if (me.lane < S::ROWS)
                copy_to_blocks(x_first + (slot ^ 1) * (C::BATCH * S::ROW_BYTES) + (me.rank * S::ROWS + me.lane) * S::ROW_BYTES,
                               planes + (size_t)x_row * S::ROW_HALVES, S::ROW_COPY, x_ready + 8 * (slot ^ 1),
                               (u16)((1u << C::CLUSTER) - 1));
            if constexpr (C::PREFETCH)
                if (me.lane < S::ROWS && s + 2 < steps) prefetch(planes + (size_t)next_x_row * S::ROW_HALVES, S::ROW_COPY);
            warp_barrier();
        }
        if (me.warp < S::ROW_TILES) fused_hidden_gradient<C>(sm, me, slot, w2_hi, w2_lo, bad);
        block_barrier();
        u32 dh_hi[S::UNIT_TILES][S::STEPS_OF_K][4], dh_lo[S::UNIT_TILES][S::STEPS_OF_K][4];
        fused_load_gradient<C>(sm, me, dh_hi, dh_lo);
        float role[S::UNIT_TILES][S::PER_TILE];
        fused_role_gradient<C>(sm, me, dh_hi, dh_lo, backward_row, role);
        fused_update<C>(sm, me, slot, rate, of_tiles, of_role, dh_hi, dh_lo, role, backward_row, W, M, V);
    }

    // ---- all blocks agree on whether every number stayed in range; only then is the state written
    const u32 seen = warp_ballot(bad);
    if (me.lane < C::CLUSTER) put(remote(shared_address(&sm.failed[me.rank * C::WARPS + me.warp]), me.lane), seen != 0);
    warp_barrier();  // the cluster's barrier wants a warp's lanes together
    cluster_barrier();  // and nobody writes to another block any more
    bool any = false;
    for (int i = me.lane; i < C::CLUSTER * C::WARPS; i += 32) any |= sm.failed[i] != 0;
    any = warp_ballot(any) != 0;
    if (me.rank == 0 && thread == 0) *failed = any;
    if (any) return;
    // Made anew, so that what only a launch's two ends need takes no registers in between.
    const FusedStep<C> tiles_step = FusedStep<C>::make(numbers[0], W_SCALE);
    const FusedStep<C> role_step = me.has_extra ? tiles_step : FusedStep<C>::make(1.0f, 1.0f);
    UNROLL
    for (int u = 0; u < S::UNIT_TILES; u++) {
        UNROLL
        for (int p = 0; p < S::SLOTS; p++) {
            UNROLL
            for (int i = 0; i < S::PER_TILE; i++) {
                const int at = fused_offset<C>(u, p, i / S::PER_HALF, i % S::PER_HALF, me, true);
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
