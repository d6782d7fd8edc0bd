// Every number in this file is speed: any value is sound.
#include "profile/lone_atoms.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "numerics/constants.hpp"

namespace hockeystick {
namespace {

constexpr std::size_t most_atoms = 16;
constexpr double most_divisors = 2048, most_terms = 1 << 18;
constexpr double largest_exponent = 300, most_taken = 0.5;
// In units of the tilt: masses of neighbouring points are to be of like size.
constexpr double widest_bin = 16, most_between = 4096;
// The point lies below the atom that it is made for, whatever rounds.
constexpr double hardly_less = 1 - 1e-13;

// How much eps falls at this tilt. Lines that support the profile (docs/accounting/bounds.md, "One step on a
// lattice") move the largest loss down to the next point, and any other one up, by what they take of the mass
// of the next loss beyond that point.
double cost(const LoneAtoms& kind, double offset, double step, double tilt) {
    double sum = 0;
    for (std::size_t i = 0; i < kind.loss.size(); ++i) {
        const double place = (kind.loss[i] - offset) / step, above = place - std::floor(place);
        if (above == 0) continue;
        const double moved_to = offset + std::ceil(place) * step;
        std::size_t next = i + 1;
        while (next < kind.loss.size() && kind.loss[next] <= moved_to) ++next;
        const double d = next < kind.loss.size() ? kind.loss[next] - kind.loss[i] : infinity,
                     growth = std::exp(std::min(tilt * d, largest_exponent)), far = -std::expm1(-d);
        const double way_up = (1 - above) * step;
        // Where the next loss has too little mass to give, this one moves down, too.
        if (next == kind.loss.size() ||
            !(kind.mass[i] * growth * way_up < most_taken * far * kind.mass[next]))
            sum += kind.mass[i] * above * step;
        else
            sum += kind.mass[i] * way_up * ((growth - 1) / far / tilt - 1);
    }
    return sum;
}

}  // namespace

LoneAtoms lone_atoms(const Pair& pair, std::uint64_t count, const Sketch& kept, double tilt) {
    const auto law = pair.spacing() > 0 ? std::nullopt : pair.loss_law();
    if (!law || !law->pieces.empty() || law->atoms.size() > most_atoms || kept.empty()) return {};
    std::vector<LossAtom> atoms = law->atoms;
    std::erase_if(atoms, [&](const LossAtom& atom) {
        return !(atom.loss >= kept.left.front() && atom.loss <= kept.right.back());
    });
    std::ranges::sort(atoms, {}, &LossAtom::loss);
    LoneAtoms found;
    double most = -1;
    for (const LossAtom& atom : atoms) {
        found.loss.push_back(atom.loss);
        found.mass.push_back(static_cast<double>(count) *
                             std::exp(std::min(atom.log_p + tilt * atom.loss, largest_exponent)));
        if ((found.loss.size() < atoms.size() || atoms.size() == 1) && found.mass.back() > most) {
            most = found.mass.back();
            found.offset = atom.loss;
        }
    }
    return found;
}

double place(std::vector<LoneAtoms>& kinds, double tilt, double wanted, double finest, double tolerance) {
    // The kind with the most steps decides.
    const auto chief = std::ranges::max_element(kinds, {}, [](const LoneAtoms& kind) {
        return kind.loss.size() > 1 ? std::accumulate(kind.mass.begin(), kind.mass.end(), 0.0) : 0.0;
    });
    if (chief == kinds.end() || chief->loss.size() < 2) return 0;
    const std::size_t n = chief->loss.size();
    double terms = 0, best = 0, least = infinity, offset = 0;
    for (const LoneAtoms& kind : kinds) terms += static_cast<double>(kind.loss.size() * n * (n - 1) / 2);
    const auto try_ways = [&](double from, double to) {
        const double span = to - from, fewest = std::max(1.0, std::ceil(span / wanted)),
                     most = std::min(8 * fewest + 64, fewest + std::min(most_divisors, most_terms / terms));
        for (double parts = fewest; parts <= most && least > tolerance; ++parts) {
            const double step = span / parts * hardly_less;
            if (!(step >= finest)) break;
            double sum = 0;
            for (const LoneAtoms& kind : kinds)
                sum += cost(kind, &kind == &*chief ? from : kind.offset, step, tilt);
            if (sum < least) {
                least = sum;
                best = step;
                offset = from;
            }
        }
    };
    for (std::size_t to = n; to-- > 1;)
        for (std::size_t from = 0; from < to; ++from) try_ways(chief->loss[from], chief->loss[to]);
    if (best > 0) chief->offset = offset;
    return best;
}

std::vector<std::int64_t> points_around(const LoneAtoms& kind, double step, double tilt) {
    std::vector<std::int64_t> points;
    const double widest = std::max(1.0, std::floor(widest_bin / tilt / step));
    for (const double loss : kind.loss) {
        const auto below = static_cast<std::int64_t>(std::floor((loss - kind.offset) / step));
        if (!points.empty()) {
            const auto gap = static_cast<double>(below - 1 - points.back());
            const double parts = std::min(std::ceil(gap / widest), most_between);
            for (double part = 1; part < parts; ++part)
                points.push_back(points.back() + static_cast<std::int64_t>(gap / parts));
        }
        for (const int beside : {-1, 0, 1})
            if (points.empty() || below + beside > points.back()) points.push_back(below + beside);
    }
    return points;
}

}  // namespace hockeystick
