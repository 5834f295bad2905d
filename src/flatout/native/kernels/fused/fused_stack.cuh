// The fused kernel for several hidden layers: what fused.cuh does, with a stack of layers where that has one.
//
// A block owns units of every hidden layer, with their columns of the layer's kernel, and the optimizer's state of these. Upwards
// a layer's units go to all blocks, which is what the layer above multiplies; downwards each block has a part of the gradient of all
// units below, and sends it to their owners. The last hidden layer and the output are as in fused.cuh. The blocks meet at the end of each
// step, and nobody sends anything of a step before: what others write into needs to be there once.

// What all layers need to know of a step.
template <class First> struct StackStep {
    int number, steps, rank;
    float rate;
    const u16* next_row;  // of x, for a lane that fetches one
    const int (&label)[FusedSizes<First>::PASSES];
    float* row_sums;

    DEVICE_MEMBER int slot() const { return number & 1; }
    DEVICE_MEMBER int buffer() const { return First::BUFFERS == 2 ? slot() : 0; }
    DEVICE_MEMBER int parity() const { return First::BUFFERS == 2 ? number >> 1 & 1 : slot(); }
    DEVICE_MEMBER bool is_final() const { return number + 1 == steps; }
};

// For the last warp: this block's rows of the next batch, to all blocks. All have read the batch that was there before.
template <class First, class Shared>
DEVICE void stack_fetch(Shared& sm, const FusedPlace<First>& me, const StackStep<First>& now) {
    typedef FusedSizes<First> S;
    const int buffer = First::BUFFERS == 2 ? now.slot() ^ 1 : 0;
    const Address ready = sm.x_ready(buffer);
    if (me.lane == 0) arrival_expect(ready, First::BATCH * S::ROW_COPY);
    if (me.lane < S::ROWS)
        copy_to_blocks(shared_address(sm.layers.own.rows[buffer]) + (me.rank * S::ROWS + me.lane) * S::ROW_BYTES, now.next_row,
                       S::ROW_COPY, ready, (u16)((1u << First::CLUSTER) - 1));
    warp_barrier();
}

// A step of one layer and those above it: forward, the layers above, backward, and the step of the layer's weights.
// `rows` are its inputs, carried in `unit`s, which are there when `ready` ends its phase `parity`.
template <int DEPTH, class Below, class Shared, class First, class C, class... Above>
DEVICE void stack_layer(Shared& sm, StackMemory<C, Above...>& here, StackState<C, Above...>& state,
                        const StackStep<First>& now, Address rows, Address ready, int parity, float unit, bool& bad) {
    typedef FusedSizes<C> S;
    FusedPlace<C> me = place_for_now<C>(now.rank);
    LayerView<C> view = view_of(sm, here);
    const int slot = now.slot();
    fused_forward<C>(view, me, state.own.W, rows, ready, parity);
    if (DEPTH == 0 && now.number > 0 && !(C::BUFFERS == 1 && me.warp == C::WARPS - 1)) cluster_wait();  // for the last step's end
    block_barrier();  // sums of all warps
    if constexpr (C::IS_LAST) {
        typename S::OutputKernel w2_hi, w2_lo;
        if (me.warp < S::ROW_TILES) fused_hidden<C>(view, me, slot, unit * (1.0f / W_SCALE), w2_hi, w2_lo, bad);
        if (me.warp < S::SOFTMAX_WARPS) fused_softmax<C>(view, me, slot, now.label, now.row_sums, bad);
        if (me.warp < S::ROW_TILES) fused_hidden_gradient<C>(view, me, slot, w2_hi, w2_lo, bad);
    } else {
        char* rows_above = here.above.own.rows[0];
        stack_units<C, LayerAbove<Above...>>(view, me, unit * (1.0f / W_SCALE), rows_above, bad);
        block_barrier();  // units of all warps
        stack_gather<C, LayerAbove<Above...>>(me, rows_above, sm.rows_ready(DEPTH + 1));
        if constexpr (DEPTH == 0 && C::BUFFERS == 2)
            if (me.warp == C::WARPS - 1 && !now.is_final()) stack_fetch(sm, me, now);
        stack_layer<DEPTH + 1, C>(sm, here.above, state.above, now, shared_address(rows_above), sm.rows_ready(DEPTH + 1), slot,
                                  1.0f / HIDDEN_SCALE, bad);
        me = place_for_now<C>(now.rank);
        stack_gradient<C>(view, me, sm.parts[DEPTH & 1 & (Shared::LAYERS > 2)], sm.parts_ready(DEPTH), slot, bad);
    }
    block_barrier();  // the gradient of all rows
    me = place_for_now<C>(now.rank);
    typename S::Gradient dh_hi, dh_lo;
    fused_load_gradient<C>(view, me, dh_hi, dh_lo);
    if constexpr (DEPTH > 0)
        stack_scatter<C, Below>(me, state.own.W, dh_hi, dh_lo, shared_address(sm.parts[(DEPTH - 1) & 1 & (Shared::LAYERS > 2)]),
                                sm.parts_ready(DEPTH - 1));
    const Address backward_row = rows + (me.lane & 15) * S::ROW_BYTES + (me.lane >> 4) * 16;
    const FusedStep<C> of_tiles = FusedStep<C>::make(unit, W_SCALE);
    const FusedStep<C> of_role = me.has_extra ? of_tiles : FusedStep<C>::make(1.0f, 1.0f);
    typename S::Role role = {};
    fused_role_gradient<C>(view, me, dh_hi, dh_lo, backward_row, role);
    fused_update<C>(view, me, slot, now.rate, of_tiles, of_role, dh_hi, dh_lo, role, backward_row, state.own.W, state.own.M, state.own.V);
}

// A layer's weights into registers and shared memory, and those of the layers above it.
template <class C, class... Above>
DEVICE void stack_load(StackMemory<C, Above...>& here, StackState<C, Above...>& state, const float* weights,
                       const float* slot_0, const float* slot_1, float unit, bool& bad) {
    typedef FusedSizes<C> S;
    const FusedPlace<C> me = FusedPlace<C>::here();
    const int thread = thread_number();
    const FusedStep<C> of_tiles = FusedStep<C>::make(unit, W_SCALE);
    const FusedStep<C> of_role = me.has_extra ? of_tiles : FusedStep<C>::make(1.0f, 1.0f);
    fused_load_state<C>(me, weights, slot_0, slot_1, of_tiles, of_role, state.own.W, state.own.M, state.own.V, bad);
    if (thread < S::UNITS) here.own.b1[thread] = is_padding<C>(me, thread) ? 0.0f : weights[C::AT_B1 + me.rank * S::UNITS + thread];
    if constexpr (C::IS_LAST) {
        for (int i = thread; i < S::UNITS * S::STRIDE; i += C::WARPS * 32) {
            const int own = i / S::STRIDE, output = i % S::STRIDE;
            const int at = C::AT_W2 + (me.rank * S::UNITS + own) * C::OUTPUTS + output;
            here.w2[i] = output < C::OUTPUTS && !is_padding<C>(me, own) ? split_word<C::EXACT>(weights[at]) : 0;
        }
        for (int i = thread; i < C::BATCH * S::STRIDE; i += C::WARPS * 32) here.dlogits[i] = 0;
        if (thread < C::OUTPUTS) here.b2[0][thread] = weights[C::AT_B2 + thread];
    } else {
        // Features that fill the tiles have weights of 0, which a NaN would outlive.
        u32* rows = (u32*)here.above.own.rows[0];
        for (int i = thread; i < (int)sizeof(here.above.own.rows) / 4; i += C::WARPS * 32) rows[i] = 0;
        stack_load(here.above, state.above, weights, slot_0, slot_1, 1.0f / HIDDEN_SCALE, bad);
    }
}

template <class C, class... Above>
DEVICE void stack_store(const StackState<C, Above...>& state, float* weights, float* slot_0, float* slot_1,
                        float unit) {
    const FusedPlace<C> me = FusedPlace<C>::here();
    fused_store_state<C>(me, unit, weights, slot_0, slot_1, state.own.W, state.own.M, state.own.V);
    if constexpr (!C::IS_LAST) stack_store(state.above, weights, slot_0, slot_1, 1.0f / HIDDEN_SCALE);
}

// One thread: what comes to this block in a step from between the layers.
template <int DEPTH, class Shared, class C, class... Above> DEVICE void stack_expect(Shared& sm, int rank) {
    if constexpr (!C::IS_LAST) {
        arrival_expect(sm.rows_ready(DEPTH + 1), bytes_of_gather<C, LayerAbove<Above...>>(rank));
        arrival_expect(sm.parts_ready(DEPTH), bytes_of_scatter<C>(rank));
        stack_expect<DEPTH + 1, Shared, Above...>(sm, rank);
    }
}

// Arguments as those of fused_train.
template <class First, class... Above, class Label>
DEVICE void fused_train_stack(FusedStack<First, Above...>, const u16* planes, const Label* labels, const int* order,
                              const int* span, const float* scalars, const float* numbers, float* weights,
                              float* slot_0, float* slot_1, float* row_sums, int* failed) {
    typedef FusedSizes<First> S;
    typedef StackShared<First, Above...> Shared;
    constexpr int FETCHER = First::WARPS - 1;
    CLUSTER_SHARED(Shared, sm);
    static_assert(sizeof(Shared) <= First::SHARED_BYTES, "shared memory as the host allots it");
    const FusedPlace<First> me = FusedPlace<First>::here();
    const int thread = thread_number(), steps = span[1];
    const float x_unit = numbers[0];
    order += span[0];
    bool bad = false;
    StackState<First, Above...> state;
    stack_load(sm.layers, state, weights, slot_0, slot_1, x_unit, bad);
    if (thread == 0) {
        for (int i = 0; i < 4 + 2 * Shared::LAYERS; i++) arrival_init(shared_address(&sm.arrivals[i]));
        arrival_init_done();
    }
    block_barrier();

    if (me.warp == FETCHER && steps > 0)
        fused_first_batch<First>(me, shared_address(sm.layers.own.rows[0]), planes, order, sm.x_ready(0));
    const int first_own = me.rank * S::ROWS + me.warp % S::ROWS_AT_ONCE;
    FusedLabels<First> labels_ahead;
    labels_ahead.begin(labels, order, first_own, steps);
    const int fetched = me.rank * S::ROWS + me.lane % S::ROWS;
    int next_x_row = steps > 1 ? order[First::BATCH + fetched] : 0;
    float next_rate = steps > 0 ? scalars[First::RATE] : 0.0f;
    cluster_barrier();  // every arrival barrier exists before the first byte comes from elsewhere

    NO_UNROLL
    for (int s = 0; s < steps; s++) {
        // Labels, row numbers and rate were read one or two steps ahead.
        const int later = s + 2 < steps ? s + 2 : steps - 1;
        labels_ahead.advance(labels, order, first_own, later);
        const int x_row = next_x_row;
        if (me.warp == FETCHER) next_x_row = order[(size_t)later * First::BATCH + fetched];
        const float rate = next_rate;
        next_rate = scalars[2 * (s + 1 < steps ? s + 1 : s) + First::RATE];
        if (thread == 0) {
            arrival_expect(shared_address(&sm.arrivals[0]), S::EXCHANGED);
            arrival_expect(shared_address(&sm.arrivals[1]), S::EXCHANGED);
            stack_expect<0, Shared, First, Above...>(sm, me.rank);
        }
        const StackStep<First> now = {s, steps, me.rank, rate, planes + (size_t)x_row * S::ROW_HALVES, labels_ahead.now, row_sums + (size_t)s * (2 * First::BATCH)};
        if constexpr (First::PREFETCH)
            if (me.warp == FETCHER && me.lane < S::ROWS && !now.is_final()) prefetch(now.next_row, S::ROW_COPY);
        stack_layer<0, void>(sm, sm.layers, state, now, shared_address(sm.layers.own.rows[now.buffer()]), sm.x_ready(now.buffer()),
                             now.parity(), x_unit, bad);
        warp_barrier();  // the cluster's barrier wants a warp's lanes together
        if (!now.is_final()) {
            cluster_arrive();  // this warp has read all that the next step will overwrite
            if (First::BUFFERS == 1 && me.warp == FETCHER) {
                cluster_wait();  // for the others, before their batch is replaced
                stack_fetch(sm, me, now);
            }
        }
    }

    if (!fused_has_failed<First>(sm.failed, me, bad, failed)) stack_store(state, weights, slot_0, slot_1, numbers[0]);
}
