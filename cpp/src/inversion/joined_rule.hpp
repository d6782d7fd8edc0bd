// The rule for joined pairs: that of advanced joint convexity around N(m, 1) against N(0, 1), by sampling
// probability q, and that of a full batch from which a record is left out.
//
// With R_+ and R_- the ratios P/Q of the two halves and phi the density of N(0, 1), the losses are ln R_+ of
// P-density phi P_+ and -ln R_- of P-density phi Q_-, each from where its ratio is 1, and 0 for the rest.
// Neither half can be moved off the real line at its end, but both can along a path that begins there
// (docs/accounting/bounds.md, "Layers of losses").
#pragma once

#include <cstddef>
#include <vector>

#include "inversion/falling_sum.hpp"
#include "numerics/complex.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

class JoinedRule {
public:
    // Of a joined part, taken with probability part.weight. width: of the windows. end: the last output that
    // counts. log_wanted: ln of one over the error, beside the mass.
    JoinedRule(const MixturePart& part, double width, double end, double log_wanted);
    // How many terms a measure has at most.
    std::size_t terms() const noexcept { return above().loss.size() + below().loss.size() + 1; }
    bool usable() const noexcept { return usable_; }
    double last() const noexcept { return above().output.back(); }
    double pitch() const noexcept { return scale_ * h_; }
    // ln of what |kappa phi P R^s| of the positive losses grows by from the real line to the path.
    double growth(const Window& window, double s) const noexcept;

    // The nodes' shares of a measure: of the positive losses those in a window; all others where it begins
    // nowhere.
    struct Share {
        std::vector<Complex> log;
        std::vector<double> slack;
        double first;   // of the outputs just below the path
        double reach;   // an output beyond which hardly anything is left of the window
        double spread;  // ln of what |R| grows by at most from an output up to there to where it is moved to
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
    // The rule's error at Re z = s and any Im z >= 0 is at most `relative` times the integral at s, `beyond`
    // times that of the positive losses from share.reach on (without the weight), and `absolute`, in units of
    // e^shift, but for the positive losses beyond last().
    struct Error {
        double relative, beyond, absolute;
    };
    Error error(const Share& share, const Window& window, double s, double shift) const;

private:
    // The nodes of one half: ln of h phi Q t', and ln R.
    struct Half {
        JoinedHalf shifts;
        double start;                        // Re t where the path begins
        std::vector<double> output, height;  // Re t, Im t
        std::vector<Complex> log_q, loss;
        std::vector<double> q_slack, loss_slack;
    };
    const Half& above() const noexcept { return halves_.front(); }
    const Half& below() const noexcept { return halves_.back(); }
    void add_node(Half& half, Complex w, double constant) const;
    double aliasing() const noexcept;
    double spread_up_to(double output) const;
    double spread_below() const;
    template <class Visit>
    void for_terms(const Share& share, double s, Visit visit) const;

    double q_, weight_, log_atom_ = 0;
    double scale_ = 0, h_ = 0, depth_;
    // ln of 1/cos(b/2), b the angle by which e^{q_shift t} of the positive losses is turned at most: |Q| is
    // no less than this of its value on the real line, and |P| no more than all of it. ln of the largest
    // |1/R_-|.
    double most_spread_ = 0, spread_below_ = 0;
    bool usable_ = false;
    std::vector<Half> halves_;  // one, where both are the same
};

}  // namespace hockeystick
