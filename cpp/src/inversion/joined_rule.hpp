// The rule for the pair of advanced joint convexity around N(m, 1) against N(0, 1), by sampling probability
// q.
//
// With R(t) = 1 - q + q e^{m (t - m/2)} and phi the density of N(0, 1), its losses are ln R(t) of P-density
// phi R and -ln R(t) of P-density phi, for t > m/2, and 0 with mass (1-q) (2 Phi(m/2) - 1). Neither half can
// be moved off the real line at its end m/2, but both can along a path that begins there
// (docs/accounting/bounds.md, "Layers of losses").
#pragma once

#include <complex>
#include <cstddef>
#include <vector>

#include "inversion/falling_sum.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

class JoinedRule {
public:
    using Complex = std::complex<double>;
    // P = (1-q) N(0) + q N(m) against Q = N(0), taken with probability part.weight. width: of the windows.
    // end: the last output that counts. log_wanted: ln of one over the error, beside the mass.
    JoinedRule(const MixturePart& part, double width, double end, double log_wanted);
    std::size_t size() const noexcept { return loss_.size(); }
    bool usable() const noexcept { return usable_; }
    double last() const noexcept { return last_; }
    double pitch() const noexcept { return scale_ * h_; }
    // ln of what |kappa phi R^{1+s}| grows by from the real line to the path.
    double growth(const Window& window) const noexcept;

    // The nodes' shares of a measure: of the positive losses those in a window; all others where it begins
    // nowhere.
    struct Share {
        std::vector<Complex> log;
        std::vector<double> slack;
        double first;  // of the outputs just below the path
        bool rest;
    };
    Share share(const Window& window) const;

    // ln of the largest term of the sum for M(s).
    double peak(const Share& share, double s) const;
    struct Sums {
        double value, first, second;  // sums of terms, times the loss, times its square
        double rounding;
    };
    // Relative to e^shift. Terms below e^least are left out.
    Sums sums(const Share& share, double s, double shift, double least) const;
    // Adds the terms along Re z = s; those below e^least become part of its fixed error.
    void add(const Share& share, double s, double least, FallingSum& sum) const;
    // The rule's error at Re z = s and any Im z >= 0 is at most `relative` times the integral at s and
    // `absolute`, in units of e^shift, but for the positive losses beyond last().
    struct Error {
        double relative, absolute;
    };
    Error error(const Share& share, const Window& window, double s, double shift) const;

private:
    double aliasing() const noexcept;
    template <class Visit>
    void for_terms(const Share& share, double s, Visit visit) const;

    double shift_, q_, weight_, start_, log_atom_;
    double scale_ = 0, h_ = 0, depth_ = 0, last_ = 0;
    bool usable_ = false;
    std::vector<double> output_, height_;  // Re t and Im t
    std::vector<Complex> log_p_, loss_;    // ln of h phi t', of R
    std::vector<double> p_slack_, loss_slack_;
};

}  // namespace hockeystick
