// Weights and optimizer state of a layer: between device memory and the registers of the fused kernel.

// The gradient's fragment has the same map of threads to elements as the weight's fragment.
template <class C>
DEVICE void fused_load_state(const FusedPlace<C>& me, const float* weights, const float* slot_0, const float* slot_1, const FusedStep<C>& of_tiles, const FusedStep<C>& of_role, float (&W)[FusedSizes<C>::UNIT_TILES][FusedSizes<C>::SLOTS][FusedSizes<C>::PER_TILE], float (&M)[FusedSizes<C>::UNIT_TILES][FusedSizes<C>::SLOTS][FusedSizes<C>::PER_TILE], float (&V)[FusedSizes<C>::UNIT_TILES][FusedSizes<C>::SLOTS][FusedSizes<C>::PER_TILE], bool& bad) {
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
DEVICE void fused_store_state(const FusedPlace<C>& me, float unit, float* weights, float* slot_0, float* slot_1, const float (&W)[FusedSizes<C>::UNIT_TILES][FusedSizes<C>::SLOTS][FusedSizes<C>::PER_TILE], const float (&M)[FusedSizes<C>::UNIT_TILES][FusedSizes<C>::SLOTS][FusedSizes<C>::PER_TILE], const float (&V)[FusedSizes<C>::UNIT_TILES][FusedSizes<C>::SLOTS][FusedSizes<C>::PER_TILE]) {
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
