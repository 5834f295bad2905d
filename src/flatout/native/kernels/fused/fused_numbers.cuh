// Numbers as the fused kernel carries them: every operand of the matrix unit as fp16 hi + lo (about 22 bits), sums, weights
// and optimizer state as float.
constexpr float LO = 2048.0f;           // lo parts are carried times this, so that they are no subnormals
constexpr float LO_INVERSE = 1.0f / 2048.0f;
constexpr float W_SCALE = 256.0f;       // the first kernel is carried times this, for the same reason
constexpr float LOGIT_SCALE = 128.0f;   // gradients are carried times this and the batch size: a power of two, so exact
constexpr float HALF_LIMIT = 65504.0f;  // the largest half; what lies beyond is for another form
// Adam's denominators are carried times this, so that the product of four neither overflows nor vanishes.
constexpr float SHARED_SCALE = 1.0f / 2048.0f;

DEVICE bool is_outside(float value) { return !(fabsf(value) <= HALF_LIMIT); }

// Two floats as halves: rounded, and the rest times `scale`.
template <bool EXACT> DEVICE void split_pair(float a, float b, float scale, u32& hi, u32& lo) {
    hi = pack_halves(a, b);
    lo = 0;
    if constexpr (EXACT) {
        float ah, bh;
        unpack_halves(hi, ah, bh);
        lo = pack_halves((a - ah) * scale, (b - bh) * scale);
    }
}
// One float as a word {hi, rest * LO}.
template <bool EXACT> DEVICE u32 split_word(float a) {
    const u32 hi = pack_halves(a, 0.0f);
    if constexpr (!EXACT) return hi;
    float ah, zero;
    unpack_halves(hi, ah, zero);
    return pack_halves(a, (a - ah) * LO);
}
DEVICE float join_word(u32 word) {
    float hi, lo;
    unpack_halves(word, hi, lo);
    return fmaf(lo, LO_INVERSE, hi);
}

// How parameters take a step. Gradients come times K / unit, where x is carried in `unit`s; the weight times w_scale.
// Adam keeps m / (1 - beta_1) and v / (1 - beta_2) in the gradients' measure, which spares it two multiplications.
enum FusedRule { FUSED_ADAM, FUSED_SGD };

template <class C> struct FusedStep {
    float rate_factor, epsilon, m_scale, v_scale;

    static DEVICE_MEMBER FusedStep make(float unit, float w_scale) {
        const float k = LOGIT_SCALE * C::BATCH / unit;
        if (C::RULE == FUSED_SGD) return {w_scale / k, 0.0f, w_scale, 1.0f};
        const float root = sqrtf(C::ONE_MINUS_BETA_2);
        return {C::ONE_MINUS_BETA_1 / root * SHARED_SCALE * w_scale, C::EPSILON * k / root * SHARED_SCALE,
                k / C::ONE_MINUS_BETA_1, k * k / C::ONE_MINUS_BETA_2};
    }
    // Four parameters share one reciprocal: five results of the special-function unit instead of eight.
    DEVICE_MEMBER void four(float* w, float* m, float* v, const float* g, float learning_rate) const {
        const float rate = learning_rate * rate_factor;
        if constexpr (C::RULE == FUSED_SGD) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                if constexpr (C::SLOTS == 0) {
                    w[i] = fmaf(g[i], -rate, w[i]);
                } else {
                    m[i] = fmaf(m[i], C::MOMENTUM, -rate * g[i]);
                    w[i] += C::NESTEROV ? fmaf(m[i], C::MOMENTUM, -rate * g[i]) : m[i];
                }
            }
        } else {
            float s[4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                m[i] = fmaf(m[i], -C::ONE_MINUS_BETA_1, m[i] + g[i]);
                v[i] = fmaf(g[i], g[i], fmaf(v[i], -C::ONE_MINUS_BETA_2, v[i]));
                s[i] = fmaf(fast_sqrt(v[i]), SHARED_SCALE, epsilon);
            }
            const float p = s[0] * s[1], q = s[2] * s[3];
            const float r = fast_reciprocal(p * q) * -rate;
            const float rp = r * q, rq = r * p;
            w[0] = fmaf(m[0], rp * s[1], w[0]);
            w[1] = fmaf(m[1], rp * s[0], w[1]);
            w[2] = fmaf(m[2], rq * s[3], w[2]);
            w[3] = fmaf(m[3], rq * s[2], w[3]);
        }
    }
};
