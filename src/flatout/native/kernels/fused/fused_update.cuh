// The optimizer in the fused kernel, and what the weights in shared memory become by it.

// Gradient and step of the first kernel, some tiles at a time, so that loads, products and steps overlap; between them the step
// of the last slot, whose gradient is `role`.
template <class C, class Shared>
DEVICE void fused_update(Shared& sm, const FusedPlace<C>& me, int slot, float rate, const FusedStep<C>& of_tiles,
                         const FusedStep<C>& of_role, const typename FusedSizes<C>::Gradient& dh_hi,
                         const typename FusedSizes<C>::Gradient& dh_lo, const typename FusedSizes<C>::Role& role,
                         Address backward_row, typename FusedSizes<C>::Parameters& W,
                         typename FusedSizes<C>::Parameters& M, typename FusedSizes<C>::Parameters& V) {
    typedef FusedSizes<C> S;
    UNROLL
    for (int first = 0; first < S::TILES; first += C::AT_ONCE) {
        FusedSum<C> sums[C::AT_ONCE][S::UNIT_TILES];
        UNROLL
        for (int plane = 0; plane < C::PLANES; plane++) {
            UNROLL
            for (int k = 0; k < S::STEPS_OF_K; k++) {
                UNROLL
                for (int i = 0; i < C::AT_ONCE; i++)
                    if (first + i < S::TILES) {
                        u32 right[4];
                        load_tiles_transposed(right, backward_row + 32 * (S::TILES * me.warp + first + i) +
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
                if (me.warp == 1 && me.t == 0) {
                    UNROLL
                    for (int r = 0; r < S::HALVES; r++) sm.b1[16 * u + me.g + 8 * r] = now[2 * r];
                } else if constexpr (!C::IS_LAST) {
                } else if (me.warp == 2 && me.g == 0 && u == 0) {
                    UNROLL
                    for (int r = 0; r < 4; r++)
                        if (me.t + 4 * r < C::OUTPUTS) sm.b2[slot ^ 1][me.t + 4 * r] = now[(r >> 1) * S::PER_HALF + (r & 1)];
                } else if (me.warp == 3) {
                    UNROLL
                    for (int i = 0; i < S::PER_TILE; i++) {
                        const int e = i % S::PER_HALF, output = 8 * (i / S::PER_HALF) + 2 * me.t + (e & 1);
                        if (output < C::OUTPUTS)
                            sm.w2[(16 * u + me.g + 8 * (e >> 1)) * S::STRIDE + output] = split_word<C::EXACT>(now[i]);
                    }
                }
            }
        }
    }
}
