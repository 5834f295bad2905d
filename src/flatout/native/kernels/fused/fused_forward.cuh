// The forward pass of the fused kernel: hidden units and partial logits.

// Sums over this warp's features, UNITS x BATCH, when x has come.
template <class C, class Shared>
DEVICE void fused_forward(Shared& sm, const FusedPlace<C>& me, const typename FusedSizes<C>::Parameters& W,
                          Address x_here, Address x_ready, int parity) {
    typedef FusedSizes<C> S;
    u32 packed[S::PACKED ? S::SLOTS : 1][4];
    if constexpr (S::PACKED) {
        UNROLL
        for (int p = 0; p < S::SLOTS; p++) {
            split_pair<C::EXACT>(W[0][p][0], W[0][p][1], 1.0f, packed[p][0], packed[p][1]);
            split_pair<C::EXACT>(W[0][p][2], W[0][p][3], 1.0f, packed[p][2], packed[p][3]);
        }
    }
    arrival_wait(x_ready, parity);
    const Address forward_row = x_here + ((me.lane & 7) + ((me.lane >> 4) << 3)) * S::ROW_BYTES + ((me.lane >> 3) & 1) * 16;
    constexpr int PARTS = S::PACKED || !C::EXACT ? 1 : 2;
    float acc[S::UNIT_TILES][PARTS][S::ROW_TILES][4] = {};
    UNROLL
    for (int p = 0; p < S::SLOTS; p++)
        if (p < S::TILES || me.has_extra) {
            const Address column = forward_row + 32 * (p < S::TILES ? S::TILES * me.warp + p : S::TILES * C::WARPS + me.extra);
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
            float* upper = &sm.partial[me.warp][at_unit<C>(16 * u + me.g, j, 2 * me.t)];
            if constexpr (S::PACKED) {
                store_two(upper, C::EXACT ? main[0] + main[2] : main[0], C::EXACT ? main[1] + main[3] : main[1]);
            } else {
                float* lower = &sm.partial[me.warp][at_unit<C>(16 * u + me.g + 8, j, 2 * me.t)];
                store_two(upper, PARTS == 2 ? main[0] + rest[0] : main[0], PARTS == 2 ? main[1] + rest[1] : main[1]);
                store_two(lower, PARTS == 2 ? main[2] + rest[2] : main[2], PARTS == 2 ? main[3] + rest[3] : main[3]);
            }
        }
    }
}

// All features' sum, from those of the warps.
template <class C, class Shared> DEVICE float sum_of_warps(const Shared& sm, int at) {
    float even = sm.partial[0][at], odd = sm.partial[1][at];
    UNROLL
    for (int i = 2; i < C::WARPS; i += 2) {
        even += sm.partial[i][at];
        odd += sm.partial[i + 1][at];
    }
    return even + odd;
}

// For a warp of every eight rows: the hidden units, and partial logits pushed to the rows' owners. Leaves the second kernel as the
// left operand of the hidden units' gradient.
template <class C, class Shared>
DEVICE void fused_hidden(Shared& sm, const FusedPlace<C>& me, int slot, float h_unit,
                         typename FusedSizes<C>::OutputKernel& w2_hi, typename FusedSizes<C>::OutputKernel& w2_lo,
                         bool& bad) {
    typedef FusedSizes<C> S;
    const Address logits_ready = shared_address(&sm.arrivals[0]);
    float h[2 * S::EIGHTS];
    u32 h_hi[S::EIGHTS], h_lo[S::EIGHTS], a_hi[2 * S::EIGHTS], a_lo[2 * S::EIGHTS];
    UNROLL
    for (int k = 0; k < S::EIGHTS; k++) {  // the second kernel as left operand: outputs g, g + 8; units t, t + 4 (+ 8 k)
        const u32* first = sm.w2 + (me.t + 8 * k) * S::STRIDE + me.g;
        const u32 q0 = me.g < C::OUTPUTS ? first[0] : 0, q1 = me.g < C::OUTPUTS ? first[4 * S::STRIDE] : 0;
        const bool second = me.g + 8 < C::OUTPUTS;
        const u32 q2 = second ? first[8] : 0, q3 = second ? first[4 * S::STRIDE + 8] : 0;
        a_hi[2 * k] = low_halves(q0, q1);
        a_lo[2 * k] = high_halves(q0, q1);
        a_hi[2 * k + 1] = low_halves(q2, q3);
        a_lo[2 * k + 1] = high_halves(q2, q3);
    }
    UNROLL
    for (int k = 0; k < 2 * S::EIGHTS; k++) {
        const int unit = me.t + 4 * k, at = at_unit<C>(unit, me.warp, me.g);
        const float z = fmaf(sum_of_warps<C>(sm, at), h_unit, sm.b1[unit]);
        h[k] = C::Activation::value(z);
        sm.slope[at] = C::Activation::slope(z, h[k]);
        if constexpr (C::WIDTH < C::HIDDEN)
            if (is_padding<C>(me, unit)) h[k] = sm.slope[at] = 0.0f;
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
        const int output = me.g + 8 * half, row = 8 * me.warp + 2 * me.t;
        if (output < C::OUTPUTS) {
            const u32 z0 = bits_of(fmaf(d[2 * half], LO_INVERSE, c[2 * half]));
            const u32 z1 = bits_of(fmaf(d[2 * half + 1], LO_INVERSE, c[2 * half + 1]));
            const Address here = shared_address(sm.logits[slot]) + (me.rank * C::OUTPUTS + output) * (S::ROWS * 4);
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
        sm.hidden[at_unit<C>(me.t + 4 * k, me.warp, me.g)] =
            (k & 1) ? high_halves(h_hi[k >> 1], h_lo[k >> 1]) : low_halves(h_hi[k >> 1], h_lo[k >> 1]);
    warp_barrier();  // the slopes are read by other lanes of this warp
    // The second kernel as left operand of the hidden units' gradient, while the logits are on their way.
    // Slots of k: outputs t, t + 4, t + 8, t + 12.
    UNROLL
    for (int n = 0; n < S::EIGHTS; n++) {
        const int u = n / S::HALVES, k = n % S::HALVES;
        const u32* line = sm.w2 + (me.g + 8 * n) * S::STRIDE + me.t;
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
