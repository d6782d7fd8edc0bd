// Very many compositions of the same few pairs on one lattice: spectra made once, a product for each.
//
// For histories whose transform decays too slowly for a short line: few steps, or rarely hit ones. Their
// discretisation costs little, since few losses add up.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "hockeystick/pairs.hpp"
#include "individual/counts.hpp"
#include "inversion/transform.hpp"
#include "lattice/lattice.hpp"
#include "lattice/tail_table.hpp"

namespace hockeystick {

class LatticeBank {
public:
    // One lattice, tilted by e^{tilt L}; the window has `size` points, a size that the transform likes.
    // reference: the tilt of Chernoff's bound at the eps in question. tail_mass: P-mass in the right tail
    // that does not matter. from_below: no kind has losses below its offset, and the window begins there.
    // few: at most few_steps steps make a history.
    struct Shape {
        Bound bound;
        double tilt, reference, step;
        std::size_t size;
        double tail_mass;
        bool from_below, few;
    };
    static constexpr std::uint64_t few_steps = 32;

    LatticeBank(const Shape& shape, std::size_t kinds) : shape_(shape), entries_(kinds) {}

    bool made(std::size_t kind) const { return entries_[kind].made; }
    // Different kinds may be made by several threads at once. offset: a loss that had better lie on a
    // lattice point. at: K and its derivatives at the tilt.
    void make(std::size_t kind, const Pair& pair, double offset, const Cumulant& at);

    // About how much rounding to the lattice adds to the variance of the tilted loss.
    double added_variance(const History& history) const;
    // The history's profile, above or below the true one; empty where some kind does not fit the lattice, or
    // the history the window: `too_short`.
    std::optional<TailTable> compose(const History& history, bool& too_short) const;
    // About where P(L > x) falls to e^log_mass, from a middle and a width of the loss.
    static double reach(const Pair& pair, double middle, double width, double log_mass);

    std::size_t bytes() const;

private:
    static constexpr std::size_t further_tilts = 6;
    struct Entry {
        bool made = false, failed = false;
        LatticeTerms terms;
        double error = 0, added_variance = 0;
        double log_moment[further_tilts] = {};  // of the tilted masses, at further tilts
        // The masses' transform at the frequencies 0, ..., size/2, or its logarithm: first all real parts.
        std::vector<double> spectrum;
    };
    double further(std::size_t i) const;
    std::optional<Lattice> discretised(const Pair& shifted, double offset, const Cumulant& at) const;
    void add_moments(const Lattice& lattice, const Cumulant& at, Entry& entry) const;
    bool place(const double (&log_moment)[further_tilts], Composed& out, bool& too_short) const;
    std::vector<std::complex<double>> product(const History& history) const;

    Shape shape_;
    std::vector<Entry> entries_;
};

}  // namespace hockeystick
