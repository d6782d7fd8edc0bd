// M(z) - 1 of finitely many weighted losses, on a line of complex z, with its rounding.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <vector>

#include "inversion/transform.hpp"
#include "pairs/mixture.hpp"

namespace hockeystick {

// e^y - 1 - y, with a relative error of a few units.
double psi(double y);

// At a real tilt s, in units of e^shift: sums of p psi(sL), p L (e^{sL} - 1), p L^2 e^{sL} and p psi(-L); of
// the moduli that make up the first and `modulus` times the last, and those times the nodes' slacks; and the
// largest slack of an exponent.
struct TiltedSums {
    double value = 0, first = 0, second = 0, slope = 0, size = 0, rounding = 0, exponent = 0;
};
TiltedSums tilted_sums(const LossNodes& nodes, double shift, double s, double modulus);
// ln of the largest term at s, if that is large: what to divide by, so that nothing overflows; or 0.
double peak(const std::vector<const LossNodes*>& nodes, double s);
// K from M - 1 and its error, E[L e^{sL}] and E[L^2 e^{sL}], all in units of e^shift.
Cumulant cumulant_of(double shift, double excess, double error, double first, double second);
// Where the values are M e^{-shift}: subtracts 1.
void subtract_one(Transform::Row& row);

// sum of e^{log_p} (psi(zL) + z psi(-L)), which is M(z) - 1 where the masses are P's, as E_P[e^{-L}] = 1.
// The masses are to be shifted by e^{-shift} before they come here.
class LossSum {
public:
    // For z = s + i tau with |z| <= modulus. Terms are left out that together weigh less than
    // `negligible` for all z.
    LossSum(const LossNodes& nodes, double shift, double s, double modulus, double negligible);

    // P- and Q-mass at other losses, infinite ones among them, which the sum is to be without.
    void leave_out(double p, double q, double error);
    // Losses that are not summed by their moments.
    std::size_t size() const { return loss_.size(); }
    // The values at s + i j step.
    void values(double step, std::vector<std::complex<double>>& out) const;
    // Bounds |error| of a value at frequency tau, in units of round-off.
    double round_off(double tau, std::complex<double> value) const;

private:
    static constexpr std::size_t degree = 20;

    void add(double log_p, double loss, double log_p_slack, double loss_slack);
    void add_turning(double step, std::vector<std::complex<double>>& out) const;

    double s_, modulus_, terms_, log_negligible_;
    // Losses with |zL| <= 1 for all z enter through their moments, the others one by one.
    std::array<double, degree> moment_{};
    std::vector<double> loss_, weight_;
    double slope_ = 0, slope_error_ = 0, small2_ = 0, small1_ = 0, mass_ = 0, mean_ = 0, mean_size_ = 0,
           mass_error_ = 0, mean_error_ = 0, tilted_error_ = 0, phase_error_ = 0, tilted_ = 0, left_out_ = 0,
           slope_left_out_ = 0;
};

}  // namespace hockeystick
