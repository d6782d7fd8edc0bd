#include "individual/question.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

class EpsilonQuestion final : public Question {
public:
    explicit EpsilonQuestion(double delta) : delta_(delta) {}
    double score(double k, double s, std::size_t) const override {
        const double log_factor = log_chernoff(s), log_delta = std::log(delta_);
        return (k + log_factor - log_delta + 16 * u * (k - log_factor - log_delta)) / s;
    }
    double chernoff(double score) const override { return std::max(0.0, score); }
    double log_inverse_delta(double) const override { return -std::log(delta_); }
    Bracket solve(const Contour& contour, std::size_t, double chernoff) const override {
        const InvertedAt inverted = [&](double e) { return invert(contour, e); };
        double epsilon = chernoff;
        const Inverted at = newton(inverted, std::log(delta_), epsilon, 1e-9);
        if (!(at.value > 0)) return {0, infinity};
        if (invert(contour, 0).upper() <= delta_) return {0, 0};
        return bracket(inverted, at, epsilon, delta_);
    }
    double read(const TailTable& table, std::size_t, double chernoff, bool upper) const override {
        const auto at = [&](double e) { return table.at(e).value; };
        const double start = std::isfinite(chernoff) ? chernoff : 1e3;
        return upper ? upper_epsilon(at, delta_, start) : lower_epsilon(at, delta_, start);
    }
    bool shares_lattices() const override { return true; }

private:
    double delta_;
};

class DeltaQuestion final : public Question {
public:
    explicit DeltaQuestion(std::span<const double> epsilons) : epsilons_(epsilons) {}
    double score(double k, double s, std::size_t row) const override {
        const double log_factor = log_chernoff(s), exponent = s * epsilons_[row];
        return k + log_factor - exponent + 16 * u * (k - log_factor + exponent);
    }
    double chernoff(double score) const override { return std::min(1.0, std::exp(score) * (1 + 1e-12)); }
    double log_inverse_delta(double score) const override { return std::max(0.0, -score); }
    double point(std::size_t row) const override { return epsilons_[row]; }
    Bracket solve(const Contour& contour, std::size_t row, double) const override {
        const Inverted at = invert(contour, epsilons_[row]);
        return {std::max(0.0, at.lower() - 5e-324), std::min(1.0, at.upper() + 5e-324)};
    }
    double read(const TailTable& table, std::size_t row, double, bool) const override {
        return table.at(epsilons_[row]).value;
    }
    bool shares_lattices() const override { return false; }

private:
    std::span<const double> epsilons_;
};

}  // namespace

std::unique_ptr<Question> epsilon_at(double delta) { return std::make_unique<EpsilonQuestion>(delta); }
std::unique_ptr<Question> delta_at(std::span<const double> epsilons) {
    return std::make_unique<DeltaQuestion>(epsilons);
}

}  // namespace hockeystick
