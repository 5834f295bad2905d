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
// failed    becomes 1 if a number left the range of halves, and stays so: then nothing else was written, nor will be
template <class C, class Label>
DEVICE void fused_train(const u16* planes, const Label* labels, const int* order, const int* span, const float* scalars,
                        const float* numbers, float* weights, float* slot_0, float* slot_1, float* row_sums,
                        int* failed) {
    typedef FusedSizes<C> S;
    constexpr int FETCHER = C::WARPS - 1;
    CLUSTER_SHARED(FusedShared<C>, sm);
    static_assert(sizeof(FusedShared<C>) <= C::SHARED_BYTES, "shared memory as the host allots it");
    const FusedPlace<C> whole = FusedPlace<C>::here();
    const int thread = thread_number(), steps = span[1];
    const float x_unit = numbers[0], h_unit = x_unit * (1.0f / W_SCALE);
    order += span[0];
    const Address logits_ready = shared_address(&sm.arrivals[0]), dlogits_ready = shared_address(&sm.arrivals[1]);
    const Address x_ready = shared_address(&sm.arrivals[2]), x_first = shared_address(sm.x[0]);
    bool bad = false;

    // ---- state into registers and shared memory
    const FusedStep<C> tiles_step = FusedStep<C>::make(x_unit, W_SCALE);
    const FusedStep<C> role_step = whole.has_extra ? tiles_step : FusedStep<C>::make(1.0f, 1.0f);
    typename S::Parameters W, M, V;
    fused_load_state<C>(whole, weights, slot_0, slot_1, tiles_step, role_step, W, M, V, bad);
    for (int i = thread; i < S::UNITS * S::STRIDE; i += C::WARPS * 32) {
        const int unit = i / S::STRIDE, output = i % S::STRIDE;
        const int at = C::AT_W2 + (whole.rank * S::UNITS + unit) * C::OUTPUTS + output;
        if constexpr (C::WIDTH < C::HIDDEN)
            if (is_padding<C>(whole, unit)) {
                sm.w2[i] = 0;
                continue;
            }
        sm.w2[i] = output < C::OUTPUTS ? split_word<C::EXACT>(weights[at]) : 0;
    }
    for (int i = thread; i < C::BATCH * S::STRIDE; i += C::WARPS * 32) sm.dlogits[i] = 0;
    if constexpr (C::WIDTH < C::HIDDEN) {
        if (thread < S::UNITS) sm.b1[thread] = is_padding<C>(whole, thread) ? 0.0f : weights[C::AT_B1 + whole.rank * S::UNITS + thread];
    } else if (thread < S::UNITS) sm.b1[thread] = weights[C::AT_B1 + whole.rank * S::UNITS + thread];
    if (thread < C::OUTPUTS) sm.b2[0][thread] = weights[C::AT_B2 + thread];
    if (thread == 0) {
        for (int i = 0; i < 4; i++) arrival_init(shared_address(&sm.arrivals[i]));
        arrival_init_done();
    }
    block_barrier();

    if (whole.warp == FETCHER && steps > 0) fused_first_batch<C>(whole, x_first, planes, order, x_ready);
    FusedLabels<C> labels_ahead;
    labels_ahead.begin(labels, order, whole.rank * S::ROWS + whole.warp % S::ROWS_AT_ONCE, steps);
    int next_x_row = steps > 1 ? order[C::BATCH + whole.rank * S::ROWS + whole.lane % S::ROWS] : 0;
    float next_rate = steps > 0 ? scalars[C::RATE] : 0.0f;
    cluster_barrier();  // every arrival barrier exists before the first byte comes from elsewhere

    NO_UNROLL
    for (int s = 0; s < steps; s++) {
        const int slot = s & 1, parity = s >> 1 & 1;
        // With more than eight units registers are scarce.
        const FusedPlace<C> me = S::PACKED ? whole : place_for_now<C>(whole.rank);
        const FusedStep<C> of_tiles = S::PACKED ? tiles_step : FusedStep<C>::make(x_unit, W_SCALE);
        const FusedStep<C> of_role = S::PACKED ? role_step : me.has_extra ? of_tiles : FusedStep<C>::make(1.0f, 1.0f);
        const int first_own = me.rank * S::ROWS + me.warp % S::ROWS_AT_ONCE, fetched = me.rank * S::ROWS + me.lane % S::ROWS;
        // Labels, row numbers and rate were read one or two steps ahead.
        const int later = s + 2 < steps ? s + 2 : steps - 1;
        labels_ahead.advance(labels, order, first_own, later);
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
        block_barrier();  // sums of all warps
        typename S::OutputKernel w2_hi, w2_lo;
        if (me.warp < S::ROW_TILES) fused_hidden<C>(sm, me, slot, h_unit, w2_hi, w2_lo, bad);
        cluster_wait();  // while the logits are on their way
        if (me.warp < S::SOFTMAX_WARPS) fused_softmax<C>(sm, me, slot, labels_ahead.now, row_sums + (size_t)s * (2 * C::BATCH), bad);
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
        block_barrier();  // the gradient of all rows
        typename S::Gradient dh_hi, dh_lo;
        fused_load_gradient<C>(sm, me, dh_hi, dh_lo);
        typename S::Role role = {};
        fused_role_gradient<C>(sm, me, dh_hi, dh_lo, backward_row, role);
        fused_update<C>(sm, me, slot, rate, of_tiles, of_role, dh_hi, dh_lo, role, backward_row, W, M, V);
    }

    if (!fused_has_failed<C>(sm.failed, whole, bad, failed)) fused_store_state<C>(whole, numbers[0], weights, slot_0, slot_1, W, M, V);
}
