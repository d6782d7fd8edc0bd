// delta(eps) of a composition by inverting its Laplace transform, with certified bounds.
//
//     delta(eps) = 1/(2 pi i) integral over Re z = s of e^{K(z) - z eps} / (z (z+1)) dz,   s > 0,
//
// K = sum of counts * ln M, by the trapezoidal rule in Im z. The cost does not depend on the counts. Where
// all losses lie on one lattice, one period of the transform is enough; plain Laplace noise has a contour of
// its own (docs/accounting/bounds.md, "Exact inversion").
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "hockeystick/answer.hpp"
#include "hockeystick/pairs.hpp"

namespace hockeystick {

class DirectInversion;
class Epochs;
class OneEpoch;
struct Sharing;

// Not for use by several threads at once.
class Inversion {
public:
    // Null where no transform is known. Mostly the answers are far more accurate than `accuracy`; where that
    // takes several attempts, it says when to stop.
    // memory_limit: in bytes, of many frequencies.
    static std::unique_ptr<Inversion> of(const Composition& composition, double accuracy = 1e-6,
                                         std::size_t memory_limit = std::size_t{1} << 30);
    ~Inversion();

    // What may be tried: what takes little, where somebody else may answer sooner; or beside allocations also
    // very many frequencies of what can be cut, each of which takes little; all but layers of joined pairs,
    // and a pinch of noise; or these, too.
    enum class Effort { little, cut, some, all };
    // So many outcomes are what somebody else answers given each of; with few of them that is sooner.
    void beside(std::size_t outcomes);
    // Bounds as in Profile; empty where the transform decays too slowly, or no saddle was found.
    std::optional<Answer> epsilon_bounds(double delta, Effort effort = Effort::all) const;
    std::optional<Answer> delta_bounds(double epsilon, Effort effort = Effort::all) const;
    // The same for many; neighbours share what was computed for one of them. From `little` on, an epsilon of
    // these or infinity, delta is surely less than `little_of_curve`, and no point was asked about alone; nor
    // one of which no more than `slack` is open.
    std::vector<std::optional<Answer>> delta_curve(std::span<const double> epsilons, double& little,
                                                   Effort effort = Effort::all, double slack = 0) const;
    // The same at no more than the accuracy, so that each contour serves as many neighbours as it can.
    std::vector<std::optional<Answer>> rough_curve(std::span<const double> epsilons) const;
    // Whether what is laid for one curve serves the next ones, too, which must then be of one question.
    void keep_lines(bool whether) const;
    // Whether that takes next to no time, whatever delta is; or a pinch of noise, as there are atoms.
    bool quick() const;
    bool takes_noise() const;
    // An upper bound on eps(delta) that is finite wherever some moment is, and never tight.
    double chernoff_epsilon(double delta) const;
    // As loose, for delta(epsilon).
    double chernoff_delta(double epsilon) const;
    // Whether a quick bound shows delta(epsilon) < delta.
    bool surely_below(double epsilon, double delta) const;
    // Whether that is likely to show that there is nothing.
    bool far(double epsilon) const;
    // Speed: no point of a curve is asked about alone where that takes long and delta is surely less.
    static constexpr double little_of_curve = 1e-40;

private:
    Inversion(const Composition& composition, double accuracy, std::size_t memory_limit);
    // Whether layers are likely to be needed, so that what comes before them must be quick. dear: whether
    // those of joined pairs are worth their time.
    bool layers_soon(bool dear) const;
    // Whether nothing is asked of what is not cut.
    bool cuts_alone(Effort effort) const;
    bool fits(double delta) const;
    // Whether its bounds are about as far apart as what was left out.
    static bool lacks(const std::optional<Answer>& best, double dropped);
    // The narrowest of several attempts, of which the first with a gap below `enough` will do: one epoch of
    // random allocation in two parts, some in three, the whole transform if it `fits`, the transform without
    // P's largest losses, for about this delta, some epochs in three parts although that does not suit them
    // (`last`), `layers`, or a pinch of noise where atoms keep the transform from falling, and very many
    // frequencies.
    template <class AskDirect, class AskEpoch, class AskEpochs, class AskLayers, class AboutDelta>
    std::optional<Answer> narrowest(double enough, bool fits, Effort effort, AskDirect ask_direct,
                                    AskEpoch ask_epoch, AskEpochs ask_epochs, AskLayers ask_layers,
                                    AboutDelta delta) const;
    // The least of these from which on a curve's points are not worth being asked about alone, or infinity.
    double little_from(std::vector<double> epsilons) const;
    const DirectInversion& without(double mass) const;  // the largest losses, of that P-mass
    std::optional<Answer> delta_with_noise(double epsilon, double enough) const;
    bool worth_coarser(const std::optional<Answer>& best, double tolerance) const;
    std::optional<Answer> delta_in_layers(double epsilon) const;
    template <class AskDirect, class AboutDelta>
    void without_largest(std::optional<Answer>& best, double enough, bool fits, Effort effort,
                         AskDirect ask_direct, AboutDelta delta) const;
    template <class AskDirect, class AskLayers, class AboutDelta>
    void ask_at_last(std::optional<Answer>& best, double enough, bool fits, bool asked_layers, Effort effort,
                     AskDirect ask_direct, AskLayers ask_layers, AboutDelta delta) const;
    template <class AskDirect, class AboutDelta>
    std::optional<Answer> epochs_quickly(const std::optional<Answer>& best, AskDirect ask_direct,
                                         AboutDelta delta) const;
    std::optional<Answer> delta_bounds(double epsilon, double enough, Effort effort) const;
    std::vector<std::optional<Answer>> shared(std::span<const double> epsilons, Sharing sharing,
                                              double enough, Effort effort,
                                              std::vector<std::size_t>& left) const;
    void ask_alone(std::span<const double> epsilons, std::span<const std::size_t> places, bool dear,
                   std::vector<std::optional<Answer>>& curve) const;
    Composition composition_;
    std::size_t most_frequencies_;
    std::unique_ptr<DirectInversion> direct_;
    std::unique_ptr<OneEpoch> one_epoch_;  // null where it is something else
    std::unique_ptr<Epochs> epochs_;       // as well
    bool allocation_;                      // some step is one
    bool slow_;                            // every contour takes long
    std::size_t of_little_;                // frequencies that this effort may take
    double whole_gap_;                     // good enough, of epochs, not to ask the whole transform
    double narrow_gap_;                    // good enough not to look for better
    double curve_gap_;                     // the same for many points at once
    double layer_tolerance_;               // what each source of error in layers aims at, beside delta
    double fine_tolerance_;                // what is tried before
    mutable std::unique_ptr<DirectInversion> cut_;  // the last one without the largest losses
    mutable double cut_mass_ = 0;
};

}  // namespace hockeystick
