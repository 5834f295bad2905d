// The backward pass of the fused kernel: gradients of all weights.

// For a warp of every eight rows: the gradient of the hidden units, as a left operand.
template <class C, class Shared>
DEVICE void fused_hidden_gradient(Shared& sm, const FusedPlace<C>& me, int slot,
                                  const typename FusedSizes<C>::OutputKernel& w2_hi,
                                  const typename FusedSizes<C>::OutputKernel& w2_lo, bool& bad) {
    typedef FusedSizes<C> S;
    const Address dlogits_ready = shared_address(&sm.arrivals[1]);
    arrival_wait(dlogits_ready, slot);
    const u32* line = sm.dlogits + (8 * me.warp + me.g) * S::STRIDE + me.t;
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
            load_two(&sm.slope[at_unit<C>(16 * u + me.g + 8 * k, me.warp, 2 * me.t)], slope_0, slope_1);
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
            store_two(&sm.dh[me.warp][me.lane][2 * (S::HALVES * u + k)], hi, lo);
        }
    }
}

// That gradient of all rows into registers; with PACKED dh_hi has both parts.
template <class C, class Shared>
DEVICE void fused_load_gradient(Shared& sm, const FusedPlace<C>& me, typename FusedSizes<C>::Gradient& dh_hi,
                                typename FusedSizes<C>::Gradient& dh_lo) {
    typedef FusedSizes<C> S;
    UNROLL
    for (int u = 0; u < S::UNIT_TILES; u++) {
        UNROLL
        for (int j = 0; j < S::ROW_TILES; j++) {
            const u32* of_lane = &sm.dh[j][me.lane][2 * S::HALVES * u];
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
}

// The gradients of the last slot: of a further tile of features, of a bias, or of the second kernel. `role` was 0.
template <class C, class Shared>
DEVICE void fused_role_gradient(Shared& sm, const FusedPlace<C>& me, const typename FusedSizes<C>::Gradient& dh_hi,
                                const typename FusedSizes<C>::Gradient& dh_lo, Address backward_row,
                                typename FusedSizes<C>::Role& role) {
    typedef FusedSizes<C> S;
    if (me.has_extra) {
        FusedSum<C> sums[S::UNIT_TILES];
        UNROLL
        for (int plane = 0; plane < C::PLANES; plane++) {
            UNROLL
            for (int k = 0; k < S::STEPS_OF_K; k++) {
                u32 right[4];
                load_tiles_transposed(right, backward_row + 32 * (S::TILES * C::WARPS + me.extra) + plane * S::PLANE +
                                                 16 * k * S::ROW_BYTES);
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) sums[u].add(dh_hi[u][k], dh_lo[u][k], right, plane == 1);
            }
        }
        UNROLL
        for (int u = 0; u < S::UNIT_TILES; u++) sums[u].join(role[u]);
    } else if (me.warp == 1) {  // first bias: over the rows
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
    } else if constexpr (!C::IS_LAST) {  // no second layer to see to
    } else if (me.warp == 2) {  // second bias
        UNROLL
        for (int r = 0; r < 4; r++) {
            float v = 0.0f;
            if (4 * r < C::OUTPUTS) {
                UNROLL
                for (int j = 0; j < S::ROW_TILES; j++) v += join_word(sm.dlogits[(8 * j + me.g) * S::STRIDE + me.t + 4 * r]);
                v += from_lane_xor(v, 4);
                v += from_lane_xor(v, 8);
                v += from_lane_xor(v, 16);
            }
            role[0][(r >> 1) * S::PER_HALF + (r & 1)] = v;
        }
    } else if (me.warp == 3) {  // second kernel
        FusedSum<C> sums[S::UNIT_TILES];
        UNROLL
        for (int k = 0; k < S::STEPS_OF_K; k++) {
            u32 right_hi[4], right_lo[4];
            UNROLL
            for (int i = 0; i < 2; i++) {
                const u32* line = sm.dlogits + (16 * k + 8 * i + 2 * me.t) * S::STRIDE + me.g;
                const bool first = me.g < C::OUTPUTS, second = me.g + 8 < C::OUTPUTS;
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
                    load_two(&sm.hidden[at_unit<C>(16 * u + me.g, 2 * k + i, 2 * me.t)], h0, h1);
                    hi[2 * i] = low_halves(h0, h1);
                    if constexpr (S::PACKED) {
                        hi[2 * i + 1] = high_halves(h0, h1);
                        lo[2 * i] = 0;
                        lo[2 * i + 1] = hi[2 * i];
                    } else {
                        lo[2 * i] = high_halves(h0, h1);
                        load_two(&sm.hidden[at_unit<C>(16 * u + me.g + 8, 2 * k + i, 2 * me.t)], h0, h1);
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
}
