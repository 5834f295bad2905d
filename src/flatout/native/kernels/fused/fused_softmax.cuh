// The rows' owners: softmax, loss and the gradient of the logits.

// A row a warp, an output a lane. Gradients are pushed to every block, loss and score of a row written to `row_sums` of this step.
template <class C, class Shared>
DEVICE void fused_softmax(Shared& sm, const FusedPlace<C>& me, int slot, const int (&label)[FusedSizes<C>::PASSES],
                          float* row_sums, bool& bad) {
    typedef FusedSizes<C> S;
    const Address logits_ready = shared_address(&sm.arrivals[0]), dlogits_ready = shared_address(&sm.arrivals[1]);
    const int group = me.warp / S::ROWS_AT_ONCE;
    arrival_wait(logits_ready, slot);
    const int output = me.lane < C::OUTPUTS ? me.lane : C::OUTPUTS - 1;
    UNROLL
    for (int pass = 0; pass < S::PASSES; pass++) {
        const int own = me.warp % S::ROWS_AT_ONCE + pass * S::ROWS_AT_ONCE, row = me.rank * S::ROWS + own;
        const float* part = sm.logits[slot] + output * S::ROWS + own;
        float sums[4] = {sm.b2[slot][output], 0, 0, 0};
        UNROLL
        for (int i = 0; i < C::CLUSTER; i++) sums[i & 3] += part[i * C::OUTPUTS * S::ROWS];
        float z = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        bad |= !(fabsf(z) <= 1e30f);
        z = me.lane < C::OUTPUTS ? z : -1e30f;
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
        float dz = fmaf(power, inverse * LOGIT_SCALE, me.lane == label[pass] ? -LOGIT_SCALE : 0.0f);
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
            if (me.lane < C::OUTPUTS) push(remote(here, block), word, remote(dlogits_ready, block));
        }
        const u32 right = warp_ballot(me.lane < C::OUTPUTS && z == largest);
        if (group == 0 && me.lane == label[pass]) {
            float loss = logf(sum) - (z - largest);
            if constexpr (C::CLIPPED) {
                if (q < C::CLIP) loss = -logf(C::CLIP);
                if (q > 1.0f - C::CLIP) loss = -logf(1.0f - C::CLIP);
            }
            float* sums_of_row = row_sums + 2 * row;
            sums_of_row[0] = loss;
            sums_of_row[1] = first_bit(right) == label[pass] ? 1.0f : 0.0f;
        }
    }
}
