// Layers of losses against closed forms, an integral for two steps, and each other.
#include "inversion/layers.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <initializer_list>
#include <numbers>
#include <vector>

#include "check.hpp"
#include "hockeystick/pairs.hpp"

namespace hs = hockeystick;

namespace {

// What the measures between cuts say.
struct MeasuresProbe {
    using Complex = std::complex<double>;
    hs::LayerMeasures measures;
    static inline int checked = 0;

    MeasuresProbe(const std::vector<hs::MixturePart>& parts, double count, double epsilon,
                  double tolerance = 1e-10)
        : measures({{parts, count}}) {
        CHECK(measures.cut(-60, epsilon, 1, tolerance));
    }

    std::size_t cuts() const { return measures.cuts().loss.size(); }

    // Both measures below the cuts k-1 and k, and what lies between, along Re z = s.
    void check(std::size_t k, double s, double step, std::size_t size) {
        const hs::FallingSum low = measures.along({0, k - 1, false}, s, 1e-13),
                             high = measures.along({0, k, false}, s, 1e-13),
                             between = measures.along({0, k, true}, s, 1e-13);
        if (between.empty()) return;
        const hs::FallingSum::Row a = low.row(step, size, 1e-13), b = high.row(step, size, 1e-13),
                                  c = between.row(step, size, 1e-13);
        if (!(low.shift < 600 && high.shift < 600)) return;
        // Far beyond what its cut allows, a tilt gives no bound.
        if (!(a.error[0] < 1 && b.error[0] < 1 && c.error[0] < 1)) return;
        ++checked;
        const double scale_a = std::exp(low.shift), scale_b = std::exp(high.shift),
                     scale_c = std::exp(between.shift);
        const hs::LayerMeasures::Sums real = measures.sums({0, k, true}, s),
                                      all = measures.sums({0, k, false}, s);
        CHECK(std::log(c.value[0].real() - c.error[0]) + between.shift <= real.upper);
        CHECK(std::log(b.value[0].real() - b.error[0]) + high.shift <= all.upper);
        CHECK(std::abs(real.upper - real.value) < 0.1);
        for (std::size_t j = 0; j < size; ++j) {
            const Complex sum = scale_a * a.value[j] + scale_c * c.value[j] - scale_b * b.value[j];
            CHECK(std::abs(sum) <= scale_a * a.error[j] + scale_b * b.error[j] + scale_c * c.error[j]);
            // No higher frequency has more than a bound says.
            for (const std::size_t i : {j / 2, j}) {
                const double tau = step * static_cast<double>(i);
                CHECK(std::abs(c.value[j]) - c.error[j] <= between.bound(tau));
                CHECK(std::abs(a.value[j]) - a.error[j] <= low.bound(tau));
            }
        }
    }

    // With an even rule for the integrals: sums of e^{zL} over a thousand nodes and more.
    void check_directly(std::size_t k, double s, double step, std::size_t size) {
        const hs::FallingSum between = measures.along({0, k, true}, s, 1e-13);
        if (between.empty()) return;
        const hs::FallingSum::Row row = between.row(step, size, 1e-13);
        for (std::size_t j = 0; j < size; j += 7) {
            const double tau = step * static_cast<double>(j);
            Complex sum = 0;
            double moduli = 0;
            for (std::size_t i = 0; i < measures.parts().size(); ++i) {
                const hs::LayerPart& part = measures.parts()[i];
                const hs::LayerCuts::Part& cut = measures.cuts().parts[i];
                const hs::Window window(cut.width, cut.edge[k - 1], cut.edge[k]);
                constexpr double h = 1.0 / 1024;
                for (double t = window.bottom() - 12 * cut.width; t < window.top() + 40 * cut.width; t += h) {
                    const double p = part.mixture.p.log(t).value, q = part.mixture.q.log(t).value;
                    const double weight =
                        part.mixture.weight * h / std::sqrt(2 * std::numbers::pi) *
                        std::exp(p + s * (p - q) - 0.5 * t * t + window.log(t) - between.shift);
                    sum += std::polar(weight, tau * (p - q));
                    moduli += weight;
                }
            }
            CHECK(std::abs(sum - row.value[j]) <= row.error[j] + 1e-12 * moduli);
        }
    }
};

hs::MixturePart part(double sigma, double q) { return {1, {{0, 1 / sigma}, {1 - q, q}}, {{0}, {1}}, {}}; }

hs::PairPtr pair(double sigma, double q) {
    return hs::sampled(hs::gaussian(1 / sigma), q, hs::Sampling::remove);
}

double profile(const hs::Pair& pair, double epsilon) {
    const hs::Tangent t = pair.above(epsilon);
    return t.value * std::exp(t.exponent);
}

// The same for any epsilon, from the output at which the loss is epsilon; exact beside 1.
double simple_profile(double sigma, double q, double epsilon) {
    const double y = std::expm1(epsilon) + q;
    if (!(y > 0)) return -std::expm1(epsilon);
    const auto tail = [](double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); };
    const double t = 0.5 / sigma + sigma * std::log(y / q);
    return q * tail(t - 1 / sigma) - y * tail(t);
}

// One step: the layers add up to its closed form. Returns whether the answer was as narrow as asked for; the
// last attempts may be wider.
bool one_step(double sigma, double q, double epsilon, double tolerance) {
    const auto answer = hs::Layers({{{part(sigma, q)}, 1}}, {}, tolerance).delta_bounds(epsilon);
    if (!answer) return false;
    const double truth = profile(*pair(sigma, q), epsilon);
    CHECK(answer->lower <= truth * (1 + 1e-12) && truth * (1 - 1e-12) <= answer->upper);
    // Deeper down soundness is owed, and nothing else.
    if (truth > 1e-40) CHECK(answer->upper <= answer->lower * (1 + 3e5 * tolerance));
    return answer->upper <= answer->lower * (1 + 300 * tolerance);
}

// Two steps: E[delta_1(eps - L)] by the trapezoidal rule, of which the integrand is smooth and falls.
void two_steps(double sigma, double q, double epsilon, double tolerance) {
    const hs::MixturePart mixture = part(sigma, q);
    constexpr double h = 1.0 / 8192;  // near where eps - L is ln(1-q), a hundredth matters
    double truth = 0;
    for (double t = -12; t < 40 + 2 / sigma; t += h) {
        const double p = mixture.p.log(t).value, q_log = mixture.q.log(t).value;
        const double rest = simple_profile(sigma, q, epsilon - (p - q_log));
        truth += h / std::sqrt(2 * std::numbers::pi) * std::exp(p - 0.5 * t * t) * rest;
    }
    const auto answer = hs::Layers({{{mixture}, 2}}, {}, tolerance).delta_bounds(epsilon);
    CHECK(answer.has_value());
    if (!answer) return;
    CHECK(answer->lower <= truth * (1 + 1e-10) && truth * (1 - 1e-10) <= answer->upper);
    if (truth > 1e-40) CHECK(answer->upper <= answer->lower * (1 + 300 * tolerance));
    // And back; in two kinds it is the same.
    const double delta = 0.5 * (answer->lower + answer->upper);
    for (const bool split : {false, true}) {
        std::vector<hs::Layers::Kind> kinds(split ? 2 : 1, {{mixture}, split ? 1.0 : 2.0});
        const auto back = hs::Layers(kinds, {}, tolerance).epsilon_bounds(delta);
        CHECK(back.has_value());
        if (back) CHECK(back->lower <= epsilon * (1 + 1e-12) && epsilon * (1 - 1e-12) <= back->upper);
    }
}

// Two unlike steps, by the same rule over the first one's output: of one kind hardly anything is lost where
// the other's largest losses lie, so that its cuts there coincide.
void unlike_steps(double sigma, double q, double other_sigma, double other_q, double epsilon) {
    const hs::MixturePart first = part(sigma, q), second = part(other_sigma, other_q);
    constexpr double h = 1.0 / 8192;
    double truth = 0;
    for (double t = -12; t < 40 + 2 / sigma; t += h) {
        const double p = first.p.log(t).value, loss = hs::loss_at(first, t);
        truth += h / std::sqrt(2 * std::numbers::pi) * std::exp(p - 0.5 * t * t) *
                 simple_profile(other_sigma, other_q, epsilon - loss);
    }
    const auto answer = hs::Layers({{{first}, 1}, {{second}, 1}}, {}, 1e-9).delta_bounds(epsilon);
    CHECK(answer.has_value());
    if (!answer) return;
    CHECK(answer->lower <= truth * (1 + 1e-9) && truth * (1 - 1e-9) <= answer->upper);
    CHECK(truth < 1e-40 || answer->upper <= answer->lower * (1 + 1e-6));
}

// ---- joined parts ----

struct Joined {
    hs::JoinedHalf above, below;
    double q;
    hs::MixturePart part(double weight = 1) const {
        const std::vector<double> weights{1 - q, q};
        const hs::MixtureRatio p({0, above.p_shift}, weights);
        if (above.q_shift == 0) return {weight, p, {{0}, {1}}, {}, below};
        return {weight, p, {{0, above.q_shift}, weights}, {}, below};
    }
    Joined reversed() const { return {below, above, q}; }
};

// Advanced joint convexity, and a full batch that a record is left out of, or joins.
Joined convex(double m, double q) { return {{m, 0}, {m, 0}, q}; }
Joined left_out(double mu, double q) { return {{2 * mu, mu}, {mu, 0}, q}; }

// Densities of a half beside that of N(0, 1), tails, and the loss, by definition.
double beside_normal(double q, double shift, double t) { return q * std::expm1(shift * (t - 0.5 * shift)); }
double normal_tail(double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); }
double tail_of(double q, double shift, double t) {
    return (1 - q) * normal_tail(t) + q * normal_tail(t - shift);
}
double loss_of(const hs::JoinedHalf& half, double q, double t) {
    return std::log1p(beside_normal(q, half.p_shift, t)) - std::log1p(beside_normal(q, half.q_shift, t));
}
double start_of(const hs::JoinedHalf& half) { return 0.5 * (half.p_shift + half.q_shift); }
double output_at(const hs::JoinedHalf& half, double q, double loss) {
    if (half.q_shift == 0) return start_of(half) + std::log1p(std::expm1(loss) / q) / half.p_shift;
    double low = start_of(half), high = low + 60 + 60 / half.p_shift;
    for (int i = 0; i < 56; ++i) {
        const double t = 0.5 * (low + high);
        (loss_of(half, q, t) < loss ? low : high) = t;
    }
    return low;
}

// The joined pair by definition: the positive losses of one half, with P's density, minus those of the other,
// with Q's, and the rest at 0. Sums f(loss, t, positive) by Simpson's rule on both half-lines, in two parts
// that meet where the loss is `kink`.
template <class F>
auto over_halves(const Joined& pair, double end, double h, double kink, F f) {
    const double rest = 1 - tail_of(pair.q, pair.above.p_shift, start_of(pair.above)) -
                        tail_of(pair.q, pair.below.q_shift, start_of(pair.below));
    auto sum = rest * f(0.0, start_of(pair.above), false);
    const auto add = [&](const hs::JoinedHalf& half, double low, double high, bool positive) {
        const auto n = 2 * static_cast<int>((high - low) / h / 2) + 2;
        for (int i = 0; i <= n; ++i) {
            const double t = low + (high - low) * i / n, loss = loss_of(half, pair.q, t);
            const double weight = (i == 0 || i == n ? 1 : i % 2 ? 4 : 2) * (high - low) / (3 * n);
            const double phi = weight * std::exp(-0.5 * t * t) / std::sqrt(2 * std::numbers::pi);
            const double shift = positive ? half.p_shift : half.q_shift;
            sum += phi * (1 + beside_normal(pair.q, shift, t)) * f(positive ? loss : -loss, t, positive);
        }
    };
    for (const bool positive : {true, false}) {
        const hs::JoinedHalf& half = positive ? pair.above : pair.below;
        const double start = start_of(half), last = end + start,
                     middle = std::min(last, output_at(half, pair.q, positive ? kink : -kink));
        if (middle > start) add(half, start, middle, positive);
        if (middle < last) add(half, std::max(middle, start), last, positive);
    }
    return sum;
}

// The transforms of the measures below and between cuts against that rule, at low and at high frequencies.
void joined_measures(const Joined& pair, double s, double step, int size) {
    using Complex = std::complex<double>;
    hs::LayerMeasures measures({{{pair.part()}, 10}});
    CHECK(measures.cut(-60, 0.5, 1, 1e-10));
    const auto& cuts = measures.cuts();
    const std::size_t last = cuts.loss.size() - 1;
    for (std::size_t k = last - 3; k <= last; ++k)
        for (const bool between : {false, true}) {
            const hs::FallingSum along = measures.along({0, k, between}, s, 1e-13);
            if (along.empty() || !(along.shift < 600)) continue;
            const auto row = along.row(step, static_cast<std::size_t>(size), 1e-13);
            if (!(row.error[0] < 1e-6)) continue;
            ++MeasuresProbe::checked;
            const auto& cut = cuts.parts[0];
            const hs::Window window(cut.width, between ? cut.edge[k - 1] : -hs::Window::unbounded,
                                    cut.edge[k]);
            for (int j = 0; j < size; j += 12) {
                const Complex z(s, step * j);
                const Complex truth = over_halves(pair, std::max(window.top() + 12 * cut.width, 10.0),
                                                  1.0 / 256, 0, [&](double loss, double t, bool positive) {
                                                      if (between && !positive) return Complex(0.0);
                                                      const double kept = positive ? window.log(t) : 0.0;
                                                      return std::exp(z * loss + (kept - along.shift));
                                                  });
                const auto at = static_cast<std::size_t>(j);
                CHECK(std::abs(truth - row.value[at]) <= row.error[at] + 3e-8);
                CHECK(std::abs(truth) <= along.bound(step * j) + 3e-8);
            }
            const auto real = measures.sums({0, k, between}, s);
            CHECK(real.value <= real.upper && real.upper < real.value + 1e-3);
            CHECK(std::log(row.value[0].real() - row.error[0]) + along.shift <= real.upper);
        }
}

// Of one joined step: the closed form, from the output at which the loss is epsilon, or that of its reverse.
double joined_profile(const Joined& pair, double epsilon) {
    if (epsilon < 0)
        return -std::expm1(epsilon) + std::exp(epsilon) * joined_profile(pair.reversed(), -epsilon);
    const double t = output_at(pair.above, pair.q, epsilon), q = pair.q;
    return q * normal_tail(t - pair.above.p_shift) - std::expm1(epsilon) * (1 - q) * normal_tail(t) -
           std::exp(epsilon) * q * normal_tail(t - pair.above.q_shift);
}

// The lines of one point answer for its neighbours: as their own do.
void neighbours_share_lines(const hs::Layers::Kind& kind, double first, double last) {
    constexpr double enough = 1e-6;
    std::vector<double> epsilons;
    for (int i = 0; i <= 40; ++i) epsilons.push_back(first + (last - first) * i / 40);
    const auto curve = hs::Layers({kind}, {}, 1e-9).delta_curve(epsilons, {enough});
    CHECK(curve.size() == epsilons.size());
    for (std::size_t i = 0; i < curve.size(); i += 4) {
        const auto own = hs::Layers({kind}, {}, 1e-9).delta_bounds(epsilons[i]);
        CHECK(curve[i] && own);
        if (!curve[i] || !own) continue;
        CHECK(curve[i]->lower <= own->upper && own->lower <= curve[i]->upper);
        CHECK(hs::relative_gap(curve[i]) < std::max(enough, 10 * hs::relative_gap(own)));
    }
}

void joined_steps(const Joined& pair, double epsilon, double tolerance) {
    const hs::Layers::Kind one{{pair.part()}, 1}, two{{pair.part()}, 2};
    const double far = 30 + pair.above.p_shift;
    const auto holds = [&](const std::optional<hs::Answer>& answer, double truth, double slack) {
        CHECK(answer.has_value());
        if (!answer) return;
        CHECK(answer->lower <= truth * (1 + slack) && truth * (1 - slack) <= answer->upper);
        CHECK(answer->upper <= answer->lower * (1 + 1e3 * tolerance));
    };
    holds(hs::Layers({one}, {}, tolerance).delta_bounds(epsilon), joined_profile(pair, epsilon), 1e-11);
    const double truth = over_halves(pair, far, 1.0 / 2048, epsilon, [&](double loss, double, bool) {
        return joined_profile(pair, epsilon - loss);
    });
    holds(hs::Layers({two}, {}, tolerance).delta_bounds(epsilon), truth, 1e-8);
    holds(hs::Layers({two}, {}, tolerance).epsilon_bounds(truth), epsilon, 1e-8);
    if (pair.q < 1e-3) return;
    // Beside a Poisson-sampled step, which is no joined one.
    const double unlike = over_halves(pair, far, 1.0 / 2048, epsilon, [&](double loss, double, bool) {
        return simple_profile(1.5, 0.02, epsilon - loss);
    });
    holds(hs::Layers({one, {{part(1.5, 0.02)}, 1}}, {}, tolerance).delta_bounds(epsilon), unlike, 1e-8);
}

// Simpson's rule.
double integral(double low, double high, int n, const std::function<double(double)>& f) {
    double sum = 0;
    for (int i = 0; i <= n; ++i)
        sum += (i == 0 || i == n ? 1 : i % 2 ? 4 : 2) * f(low + (high - low) * i / n);
    return sum * (high - low) / (3.0 * n);
}

// One step that is cut beside others that are not: atoms, some of the mass at +inf, Laplace noise, and a
// Gaussian step. delta is the mean of the step's own delta, which has a kink, over the others' losses.
// Returns how often epsilon was found.
int in_company(const hs::MixturePart& cut, const std::function<double(double)>& alone, double kink,
               double epsilon) {
    const double a = 0.7, variance = 0.3, q0 = 0.2, p1 = 0.5, p2 = 0.25, infinite = 1e-4,
                 p0 = 1 - p1 - p2 - infinite, losses[] = {std::log(p0 / q0), 0.25, 0.75};
    const std::vector<double> q{q0, p1 * std::exp(-losses[1]), p2 * std::exp(-losses[2])};
    const auto atoms = hs::discrete({losses[0], losses[1], losses[2]}, {p0, p1, p2}, q, infinite, 0.0,
                                    1 - q[0] - q[1] - q[2]);
    const auto noise = hs::laplace(a);
    const auto first = hs::Transform::of(*atoms, 1e-9), second = hs::Transform::of(*noise, 1e-9);
    const auto beside_gaussian = [&](double e) {
        const double s = std::sqrt(variance), low = 0.5 * variance - 9 * s, high = low + 18 * s,
                     middle = std::clamp(e - kink, low, high);
        const auto f = [&](double loss) {
            const double z = (loss - 0.5 * variance) / s;
            return std::exp(-0.5 * z * z) / (s * std::sqrt(2 * std::numbers::pi)) * alone(e - loss);
        };
        // Where records are rare alone() turns within a hair of its kink.
        const auto to_middle = [&](double end) {
            return integral(0, 1, 300, [&](double x) {
                const double way = end - middle;
                return 5 * x * x * x * x * std::abs(way) * f(middle + way * x * x * x * x * x);
            });
        };
        return to_middle(low) + to_middle(high);
    };
    // The loss is a at outputs beyond one shift, -a beyond the other, and a (1 - 2 x) in between.
    const auto beside_noise = [&](double e) {
        return 0.5 * beside_gaussian(e - a) + 0.5 * std::exp(-a) * beside_gaussian(e + a) +
               integral(0, 1, 200, [&](double x) {
                   return 0.5 * a * std::exp(-a * x) * beside_gaussian(e - a * (1 - 2 * x));
               });
    };
    const double truth = infinite + p0 * beside_noise(epsilon - losses[0]) +
                         p1 * beside_noise(epsilon - losses[1]) + p2 * beside_noise(epsilon - losses[2]);
    int found = 0;
    const hs::Layers::Beside beside{
        variance, {{first.get(), 1}, {second.get(), 1}}, infinite * (1 - 1e-14), infinite * (1 + 1e-14)};
    for (const double tolerance : {1e-7, 1e-10}) {
        const auto holds = [&](const std::optional<hs::Answer>& answer, double value) {
            if (!answer) return false;
            CHECK(answer->lower <= value * (1 + 1e-8) && value * (1 - 1e-8) <= answer->upper);
            CHECK(answer->upper <= answer->lower * (1 + 1e3 * tolerance));
            return true;
        };
        CHECK(holds(hs::Layers({{{cut}, 1}}, beside, tolerance).delta_bounds(epsilon), truth));
        found += holds(hs::Layers({{{cut}, 1}}, beside, tolerance).epsilon_bounds(truth), epsilon);
    }
    return found;
}

// Company of which each value takes long, and how many were asked for.
class Dear final : public hs::Transform {
public:
    explicit Dear(const hs::Pair& pair) : base_(hs::Transform::of(pair, 1e-12)) {}
    hs::Cumulant at(double s) const override { return base_->at(s); }
    Row row(double s, double step, std::size_t size, double tolerance) const override {
        asked += size;
        return base_->row(s, step, size, tolerance);
    }
    std::unique_ptr<hs::DecayBound> decay(double s, double log_mgf) const override {
        return base_->decay(s, log_mgf);
    }
    bool dear_at(double) const override { return true; }
    mutable std::size_t asked = 0;

private:
    std::unique_ptr<hs::Transform> base_;
};

// They are asked for as long as something came of them.
void dear_values_end() {
    const Dear dear(*hs::laplace(0.2));
    const hs::Layers::Beside beside{0, {{&dear, 1}}};
    const auto in_vain = std::make_shared<std::size_t>(0);
    const auto layers = [&] { return hs::Layers({{{part(1, 1e-3)}, 3}}, beside, 1e-7, in_vain); };
    for (int question = 0; question < 30; ++question) CHECK(layers().delta_bounds(0.5).has_value());
    CHECK(dear.asked > 0 && *in_vain == 0);
    *in_vain = 1 << 20;
    const std::size_t before = dear.asked;
    CHECK(!layers().delta_bounds(0.5) && dear.asked == before);
}

// The bound lies above the sum of exponentials, and hardly.
void terms_fall() {
    hs::FallingSum sum;
    for (int i = 0; i < 40; ++i) {
        sum.re.push_back(std::cos(i));
        sum.im.push_back(std::sin(3 * i));
        sum.fall.push_back(0.03 * i);
        sum.turning.push_back(10);
    }
    for (const double tau : {0.0, 1e-3, 1.0, 30.0, 1e3, 1e9}) {
        double moduli = 0;
        for (std::size_t i = 0; i < sum.re.size(); ++i)
            moduli += (std::abs(sum.re[i]) + std::abs(sum.im[i])) * std::exp(-tau * sum.fall[i]);
        CHECK(sum.bound(tau) >= moduli && sum.bound(tau) <= 1.01 * moduli);
    }
}

}  // namespace

int main() {
    dear_values_end();
    terms_fall();
    neighbours_share_lines({{convex(2, 0.01).part()}, 2}, 0.2, 6);
    neighbours_share_lines({{convex(0.7, 1e-3).part()}, 20}, 0.01, 2);
    neighbours_share_lines({{part(0.7, 1e-3)}, 10}, 0.5, 5);
    for (const double q : {0.3, 0.01, 1e-5})
        for (const double m : {0.2, 1.0, 6.0})
            for (const double s : {0.4, 4.0, 30.0}) {
                joined_measures(convex(m, q), s, 0.3 / s, 60);
                joined_measures(left_out(m, q), s, 0.3 / s, 60);
                joined_measures(left_out(m, q).reversed(), s, 0.3 / s, 60);
            }
    for (const double tolerance : {1e-9, 1e-6}) {
        if (check::sanitized && tolerance > 1e-9) break;  // both take the same way
        joined_steps(convex(2, 0.01), 0.5, tolerance);
        joined_steps(convex(2, 0.3), 1.5, tolerance);
        joined_steps(convex(0.6, 1e-3), 0.01, tolerance);
        joined_steps(convex(0.7, 4e-6), 0.001, tolerance);
        joined_steps(convex(5, 0.1), 12, tolerance);
        for (const bool reversed : {false, true}) {
            const auto steps = [&](double mu, double q, double epsilon) {
                const Joined pair = left_out(mu, q);
                joined_steps(reversed ? pair.reversed() : pair, epsilon, tolerance);
            };
            steps(1, 0.01, 0.1);
            steps(1, 0.3, 0.5);
            steps(0.3, 1e-3, 0.01);
            steps(0.7, 4e-6, 0.001);
            steps(3, 0.1, 1.5);
        }
    }
    int found = 0;
    for (const double epsilon : {1.2, 4.0})
        for (const double q : {0.1, 1e-3, 1e-5}) {
            found += in_company(
                convex(2, q).part(), [&](double e) { return joined_profile(convex(2, q), e); }, 0, epsilon);
            found += in_company(
                part(0.7, q), [&](double e) { return simple_profile(0.7, q, e); }, std::log1p(-q), epsilon);
        }
    CHECK(found >= 12);
    for (const double q : {0.3, 0.01, 1e-4})
        for (const double sigma : {0.3, 1.0, 4.0})
            for (const double tolerance : {1e-10, 1e-7}) {  // narrow windows, and wide ones
                if (tolerance > 1e-8 && q != 0.01) continue;
                MeasuresProbe probe({part(sigma, q)}, 10, 0.5, tolerance);
                for (std::size_t k = probe.cuts() - 1; k + 6 > probe.cuts(); --k)
                    for (const double s : {0.4, 4.0, 30.0}) {
                        probe.check(k, s, 0.7 / s, 150);
                        probe.check_directly(k, s, 3 / s, 30);
                    }
            }
    // A released choice, and a mixture on either side.
    hs::MixturePart rare = part(1, 0.05), replaced{0.6, {{0, 1}, {0.9, 0.1}}, {{0, -1}, {0.9, 0.1}}, {}};
    rare.weight = 0.4;
    MeasuresProbe probe({rare, replaced}, 5, 0.5);
    for (std::size_t k = probe.cuts() - 1; k + 5 > probe.cuts(); --k)
        for (const double s : {0.4, 4.0}) {
            probe.check(k, s, 0.5, 150);
            probe.check_directly(k, s, 1, 30);
        }
    CHECK(MeasuresProbe::checked > 100);
    int answers = 0, questions = 0;
    for (const double q : {0.5, 0.02, 1e-4})
        for (const double sigma : {0.2, 0.6, 1.0, 3.0})
            for (const double loss : {0.1, 0.4, 1.0, 3.0})
                for (const double tolerance : {1e-6, 1e-10}) {
                    ++questions;
                    answers += one_step(sigma, q, sigma < 0.5 ? 4 * loss : loss, tolerance);
                }
    CHECK(answers > 0.9 * questions);
    for (const double tolerance : {1e-6, 1e-9}) {
        two_steps(1, 0.01, 0.25, tolerance);
        two_steps(1, 0.01, 1.5, tolerance);
        two_steps(0.7, 1e-3, 0.1, tolerance);
        two_steps(0.5, 0.5, 6, tolerance);
        // Losses that grow a thousandfold beyond what makes up delta, by 1e-48 to 1e-153.
        two_steps(3.01595, 0.000144941, 0.01454, tolerance);
        two_steps(9.5082, 9.36749e-05, 0.000606, tolerance);
        two_steps(16.2313, 0.000685747, 0.00289, tolerance);
    }
    unlike_steps(5.439, 0.0003154, 0.8701, 0.0002493, 6.98);
    unlike_steps(0.8701, 0.0002493, 5.439, 0.0003154, 2.5);
    unlike_steps(1.837, 1.238e-4, 0.4111, 1.114e-3, 13.5);
    unlike_steps(17, 0.004, 0.6, 0.01, 9);
    // A reference of 25 digits, deep in the tail: an infinite error once got lost there.
    for (const double tolerance : {1e-6, 1e-8, 1e-10, 1e-12}) {
        const auto answer =
            hs::Layers({{{part(0.995895, 4.21371e-06)}, 53}}, {}, tolerance).delta_bounds(8.73014375834);
        CHECK(answer.has_value());
        if (answer) CHECK(answer->lower <= 7.643028463169826e-99 && 7.643028463169825e-99 <= answer->upper);
    }
    // Many steps of which a few make up delta, 1e-81 to 1e-154: intervals of different windows, cuts and
    // tolerances overlap, and more steps, or a smaller epsilon, make delta larger.
    {
        double last = 0;
        for (const double steps : {1.0, 8.0, 100.0, 3935.0}) {
            double lower = 0, upper = 1;
            for (const double tolerance : {1e-6, 1e-8, 1e-10, 1e-12}) {
                const auto answer = hs::Layers({{{part(4.13998, 0.000156163)}, steps}}, {}, tolerance)
                                        .delta_bounds(0.0900217);
                CHECK(answer.has_value());
                if (!answer) continue;
                lower = std::max(lower, answer->lower);
                upper = std::min(upper, answer->upper);
            }
            CHECK(lower <= upper);
            CHECK(last < lower);
            last = upper;
        }
        // The first delta is 5e-114, far below those for which a lower bound is promised.
        double above = 0;
        for (const double epsilon : {0.0001, 0.00008}) {
            const auto answer =
                hs::Layers({{{part(6.78498, 3.01141e-06)}, 69}}, {}, 1e-8).delta_bounds(epsilon);
            CHECK(answer.has_value() && above <= answer->lower && answer->upper > 4.596e-114);
            if (answer) above = answer->upper;
        }
    }
    CHECK(one_step(4.13998, 0.000156163, 0.0900217, 1e-9));
    // The square of the layer's share is below the least number.
    const auto tiny = hs::Layers({{{part(4.439, 0.00136)}, 76}}, {}, 1e-10).delta_bounds(1.2);
    CHECK(tiny.has_value() && tiny->upper > 0 && tiny->lower <= tiny->upper);
    return check::summary();
}
