// M(z) - 1 of finitely many weighted losses, on a line of complex z, with its rounding.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "inversion/falling_sum.hpp"
#include "inversion/transform.hpp"
#include "numerics/complex.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

// At a real tilt s, in units of e^shift: sums of p psi(sL), p L (e^{sL} - 1), p L^2 e^{sL} and p psi(-L); of
// the moduli that make up the first and `modulus` times the last, and those times the nodes' slacks; and the
// largest slack of an exponent (docs/accounting/bounds.md, "Exact inversion of losses with atoms").
struct TiltedSums {
    double value = 0, first = 0, second = 0, slope = 0, size = 0, rounding = 0, exponent = 0;
};
// The slack of e^{zL}, by |z|, of a loss with this slack: as many units of round-off while those are few.
// Losses may be far less than what they are off by, so that |z| is large.
double exponent_slack(double loss_slack, double modulus);
// Of weighed nodes.
void weigh(LossNodes& nodes);
TiltedSums tilted_sums(const LossNodes& nodes, double shift, double s, double modulus);
// ln of the largest term at s, if that is large: what to divide by, so that nothing overflows; or 0.
double peak(const std::vector<const LossNodes*>& nodes, double s);
// K from M - 1 and its error, E[L e^{sL}] and E[L^2 e^{sL}], all in units of e^shift.
Cumulant cumulant_of(double shift, double excess, double error, double first, double second);
// Where the values are M e^{-shift}: subtracts 1.
void subtract_one(Transform::Row& row);

// sum of e^{log_p} (psi(zL) + z psi(-L)), which is M(z) - 1 where the masses are P's, as E_P[e^{-L}] = 1.
// Masses and losses are real, or complex with Im L >= 0, as along a line of outputs.
class LossSum {
public:
    // For z = s + i j step, first <= j < first + size. Of `terms` terms those are left out that together
    // weigh less than `negligible` for all z.
    LossSum(double s, double step, std::size_t first, std::size_t size, std::size_t terms, double negligible);

    // The mass is to be shifted by e^{-shift} before it comes here.
    template <class Number>  // double or complex
    void add(Number log_p, Number loss, double log_p_slack, double loss_slack);
    // P- and Q-mass at other losses, infinite ones among them, which the sum is to be without.
    void leave_out(double p, double q, double error);
    // Losses that are not summed by their moments.
    std::size_t size() const { return turning_.re.size(); }
    // The values with bounds on their rounding.
    FallingSum::Row values() const;

private:
    // Proof: the error of the polynomials that stand for the losses is bounded for this degree.
    static constexpr std::size_t degree = 20;

    // Of a value at frequency tau, but for the losses one by one, in units of round-off.
    double round_off(double tau, double modulus_of_value) const;

    double tau(std::size_t j) const { return step_ * static_cast<double>(first_ + j); }

    double s_, step_;
    std::size_t first_, size_;
    double modulus_, terms_, negligible_, log_negligible_;
    // Losses with |zL| <= 1 for all z enter through their moments, the others one by one.
    std::array<Complex, degree> moment_{};
    FallingSum turning_;
    Complex slope_ = 0, mass_ = 0, mean_ = 0;
    // The same of moduli, and errors.
    double slope_size_ = 0, mass_size_ = 0, mean_size_ = 0, second_size_ = 0, slope_error_ = 0,
           mass_error_ = 0, mean_error_ = 0, small2_ = 0, small1_ = 0, left_out_ = 0, slope_left_out_ = 0;
};

}  // namespace hockeystick
