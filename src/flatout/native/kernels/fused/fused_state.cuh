// What the fused kernel does at the two ends of a launch, and what it reads ahead: the same for one hidden layer and for several.

// The gradient's fragment has the same map of threads to elements as the weight's fragment.
template <class C>
DEVICE void fused_load_state(const FusedPlace<C>& me, const float* weights, const float* slot_0, const float* slot_1,
                             const FusedStep<C>& of_tiles, const FusedStep<C>& of_role,
                             typename FusedSizes<C>::Parameters& W, typename FusedSizes<C>::Parameters& M,
                             typename FusedSizes<C>::Parameters& V, bool& bad) {
    typedef FusedSizes<C> S;
    const float role_scale = me.has_extra ? W_SCALE : 1.0f;
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
}

// `unit`: what a 1 in the halves of x stands for.
template <class C>
DEVICE void fused_store_state(const FusedPlace<C>& me, float unit, float* weights, float* slot_0, float* slot_1,
                              const typename FusedSizes<C>::Parameters& W, const typename FusedSizes<C>::Parameters& M,
                              const typename FusedSizes<C>::Parameters& V) {
    typedef FusedSizes<C> S;
    const float role_scale = me.has_extra ? W_SCALE : 1.0f;
    // Made anew, so that what only a launch's two ends need takes no registers in between.
    const FusedStep<C> tiles_step = FusedStep<C>::make(unit, W_SCALE);
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

// For the last warp, the first batch: each block loads all rows for itself; later ones come from their owners.
template <class C>
DEVICE void fused_first_batch(const FusedPlace<C>& me, Address rows, const u16* planes, const int* order,
                              Address ready) {
    typedef FusedSizes<C> S;
    if (me.lane == 0) arrival_expect(ready, C::BATCH * S::ROW_COPY);
    warp_barrier();
    for (int row = me.lane; row < C::BATCH; row += 32)
        copy_here(rows + row * S::ROW_BYTES, planes + (size_t)order[row] * S::ROW_HALVES, S::ROW_COPY, ready);
}

// Labels of the rows from `own` on are read a step ahead, and where they are two steps ahead.
template <class C> struct FusedLabels {
    typedef FusedSizes<C> S;
    int now[S::PASSES], next[S::PASSES], next_row[S::PASSES];

    template <class Label> DEVICE_MEMBER void begin(const Label* labels, const int* order, int own, int steps) {
        UNROLL
        for (int pass = 0; pass < S::PASSES; pass++) {
            const int row = own + pass * S::ROWS_AT_ONCE;
            next[pass] = steps > 0 ? (int)(float)labels[order[row]] : 0;
            next_row[pass] = steps > 0 ? order[(steps > 1 ? C::BATCH : 0) + row] : 0;
        }
    }
    template <class Label> DEVICE_MEMBER void advance(const Label* labels, const int* order, int own, int later) {
        UNROLL
        for (int pass = 0; pass < S::PASSES; pass++) {
            now[pass] = next[pass];
            next[pass] = (int)(float)labels[next_row[pass]];
            next_row[pass] = order[(size_t)later * C::BATCH + own + pass * S::ROWS_AT_ONCE];
        }
    }
};

// All blocks agree on whether every number stayed in range, in these steps and in all before; only then is the state written.
template <class C> DEVICE bool fused_has_failed(u32 (&flags)[C::CLUSTER * C::WARPS], const FusedPlace<C>& me, bool bad, int* failed) {
    const u32 seen = warp_ballot(bad);
    const bool had_failed = *failed != 0;  // read before anybody writes it
    if (me.lane < C::CLUSTER) put(remote(shared_address(&flags[me.rank * C::WARPS + me.warp]), me.lane), seen != 0);
    warp_barrier();  // the cluster's barrier wants a warp's lanes together
    cluster_barrier();  // and nobody writes to another block any more
    bool any = false;
    for (int i = me.lane; i < C::CLUSTER * C::WARPS; i += 32) any |= flags[i] != 0;
    any = warp_ballot(any) != 0 || had_failed;
    if (me.rank == 0 && thread_number() == 0) *failed = any;
    return any;
}
