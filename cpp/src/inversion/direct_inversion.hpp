// delta(eps) of a composition by inverting its whole transform along one line; see inversion.hpp.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "inversion/contour.hpp"
#include "inversion/laplace_steps.hpp"
#include "inversion/layers.hpp"
#include "inversion/saddle.hpp"
#include "inversion/transform.hpp"

namespace hockeystick {

// Whether some step is an epoch of random allocation.
bool has_allocation(const Composition& composition);

// Not for use by several threads at once.
class DirectInversion {
public:
    // cut_mass: see Transform; of all steps together.
    explicit DirectInversion(const Composition& composition, double cut_mass = 0);

    // Whether all transforms are known; and whether theirs decays, or is periodic.
    bool known() const noexcept { return known_; }
    bool answers() const noexcept { return answers_; }
    // Whether atoms keep it from falling; and bounds from the sum with a pinch of noise, a Gaussian step of a
    // mu so small that lower bounds are hardly less ("A pinch of noise"); most: frequencies.
    bool noise_helps() const;
    std::optional<Answer> delta_with_noise(double epsilon, double enough, std::size_t most) const;
    std::optional<Answer> epsilon_with_noise(double delta, double enough, std::size_t most) const;
    // Of increasing epsilons, with a gap of about this where delta is no smaller than any that matters.
    std::vector<std::optional<Answer>> curve_with_noise(std::span<const double> epsilons, double gap,
                                                        std::size_t most) const;
    // Whether there are losses that a cut could leave out.
    bool can_cut() const;
    bool can_drop() const;
    // Whether Layers may help; and whether some kind is the joined form of sampling then, or has no layers.
    bool has_layers() const noexcept { return has_layers_; }
    bool joined() const noexcept { return joined_; }
    bool in_company() const noexcept { return company_; }
    // Whether the whole transform surely takes too many frequencies for a quick attempt.
    bool slow() const noexcept { return slow_; }
    // The layers of one question share what dear values may be asked for in vain.
    Layers layers(double tolerance) const;
    void next_question() const { *in_vain_ = 0; }
    // P-mass that the transforms leave out.
    double dropped() const noexcept { return dropped_; }

    // What an attempt may cost: empty where the frequencies left out would take more than a share `worst` of
    // delta, or where there were more than about this many products of frequencies and nodes.
    struct Budget {
        double worst = 0.5;
        double products = std::numeric_limits<double>::infinity();
        bool quick = false;  // more than a few frequencies are not even looked for, nor are dear bounds
        double coarse = 0;   // the share of delta an error may take where a quick attempt at less fails
        std::size_t frequencies = 4096;  // at most
    };
    std::optional<Answer> delta_bounds(double epsilon, Budget budget) const;
    std::optional<Answer> epsilon_bounds(double delta, Budget budget) const;
    // As delta_bounds; a contour also serves the next points, as long as it is hardly worse there.
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, Budget budget,
                                                   Sharing sharing) const;

    // Chernoff's bounds: never tight, never vague.
    double chernoff_epsilon(double delta) const;
    double chernoff_delta(double epsilon) const;
    bool surely_below(double epsilon, double delta) const;
    // Whether a normal loss of the same variance would have nothing left there, or bounded losses at their
    // largest and one of the others' variance.
    bool far(double epsilon) const;
    // An estimate of ln delta, too large where rare losses rule.
    double log_delta(double epsilon) const;

private:
    // speed: the share of delta that each source of error aims at, of kinds that are dear at most.
    static constexpr double full_share = 1e-13, dear_share = 1e-9;

    struct Kind {
        std::shared_ptr<const Transform> transform;
        double count, share, largest;  // of the error that each of its steps may make; the largest loss
    };
    // A contour but for its values.
    struct Plan {
        Contour contour;
        std::size_t size;
    };
    // How the transform decays along Re z = s (docs/accounting/bounds.md, "Exact inversion").
    using Decays = std::vector<std::unique_ptr<DecayBound>>;

    double atoms() const;
    DirectInversion with_noise(double mu) const;
    double density_tail(const Contour& contour, std::size_t size) const;
    template <class Ask>
    std::optional<Answer> with_less_noise(const std::optional<SaddlePoint>& saddle, double log_delta,
                                          double enough, std::size_t limit, Ask ask) const;
    bool find_lattice(const Composition& composition);
    void find_layers();
    double infinite(int direction) const;
    Cumulant cumulant(double s, std::optional<double> line = {}) const;  // line: as in Transform::for_line
    SaddlePoint saddle_at(double s) const { return SaddlePoint::at(s, cumulant(s)); }
    double start(double epsilon, double log_inverse_delta) const;
    template <class Judge>
    std::optional<SaddlePoint> saddle(double start, Judge judge) const;
    std::optional<SaddlePoint> saddle_for(double epsilon, double share) const;
    std::optional<SaddlePoint> saddle_of(double log_delta) const;

    Decays decays_at(double s) const;
    // Which bound of the decay: falling leaves out what does not fall, steep is dearer.
    enum class Bound { whole, falling, steep };
    double log_decay(const Decays& decays, double tau, Bound bound) const;
    double tail(const Decays& decays, double step, std::size_t first, Bound bound, double log_atom) const;
    double lattice_tail(const Decays& decays, double step, std::size_t first) const;
    std::size_t frequencies_in(double step) const;
    std::optional<Plan> make_plan(SaddlePoint saddle, double epsilon, double log_delta, const Budget& budget,
                                  double most_lost, double share) const;
    bool cut_plan(Plan& plan, const SaddlePoint& saddle, std::size_t most, bool quick, double wanted) const;
    bool worth_steep(bool good, std::size_t size, bool quick) const;
    double products(const Plan& plan) const;
    std::optional<Contour> make_contour(const SaddlePoint& saddle, double epsilon, double log_delta,
                                        Budget budget) const;
    std::optional<Contour> contour_at(double epsilon, std::optional<double> log_delta, Budget budget) const;
    bool fill(Contour& contour, std::size_t size) const;

    std::optional<Answer> on_contour(const Contour& contour, double epsilon) const;

    std::size_t composed_ = 0;
    double steps_ = 0, dropped_ = 0;
    double infinite_ = 0;  // P-mass at +inf, as the pairs have it
    // ln of a lower bound on the atom A of the sum at 0. At any eps >= 0 it adds nothing to delta, below it
    // adds A (1 - e^eps); without it e^K falls at high frequencies.
    double log_atom_ = -std::numeric_limits<double>::infinity();
    bool known_ = false, answers_ = false, has_layers_ = false, joined_ = false, company_ = false,
         slow_ = false;
    LossLattice lattice_;
    double variance_ = 0;  // of the plain Gaussian steps: K = variance s (s+1) / 2
    double pinch_ = 0;     // how much of that is not the composition's
    std::vector<Kind> kinds_;
    double wanted_share_ = full_share;
    std::shared_ptr<std::size_t> in_vain_ = std::make_shared<std::size_t>(0);  // as Layers counts
    std::optional<LaplaceSteps> laplace_;                                      // where there is nothing else
};

}  // namespace hockeystick
