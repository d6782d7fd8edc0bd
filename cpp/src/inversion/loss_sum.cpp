#include "inversion/loss_sum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/constants.hpp"

namespace hockeystick {

double exponent_slack(double loss_slack, double modulus) {
    const double y = u * modulus * loss_slack;
    // Proof: (e^y - 1)/y is at most 1 + y up to 1.
    return loss_slack * (y <= 1 ? 1 + y : std::expm1(y) / y);
}

void weigh(LossNodes& nodes) {
    nodes.mass.reserve(nodes.loss.size());
    nodes.fall.reserve(nodes.loss.size());
    for (std::size_t i = 0; i < nodes.loss.size(); ++i) {
        const double loss = nodes.loss[i], p = exp_or_0(nodes.log_p[i]);
        nodes.mass.push_back(p);
        nodes.fall.push_back(std::abs(loss) < 0.5 ? p * psi(-loss)
                                                  : exp_or_0(nodes.log_p[i] - loss) - p * (1 - loss));
    }
}

TiltedSums tilted_sums(const LossNodes& nodes, double shift, double s, double modulus) {
    TiltedSums out;
    const double unit = std::exp(-shift), reach = 1 + std::abs(s);
    for (std::size_t i = 0; i < nodes.loss.size(); ++i) {
        const double loss = nodes.loss[i], y = s * loss, log_p = nodes.log_p[i] - shift;
        // Far out nothing counts, and exp() underflows, slowly.
        if (log_p + std::max({0.0, y, -loss}) < -700) continue;
        const double p = nodes.mass[i] * unit, fall = nodes.fall[i] * unit;
        // e^y - 1 - y and e^y, times p.
        const bool small = std::abs(y) < 0.5;
        const double near = small ? p * psi(y) : 0, tilted = small ? p * (1 + y) + near : exp_or_0(log_p + y);
        out.value += small ? near : tilted - p * (1 + y);
        out.first += small ? (near + p * y) * loss : (tilted - p) * loss;
        out.second += tilted * loss * loss;
        out.slope += fall;
        const double size = tilted + p * (1 + std::abs(y)) + modulus * (fall + p),
                     slack = nodes.log_p_slack[i] + reach * exponent_slack(nodes.loss_slack[i], reach);
        out.size += size;
        out.rounding += size * (slack + std::abs(nodes.log_p[i]));
        out.exponent = std::max(out.exponent, slack);
    }
    return out;
}

double peak(const std::vector<const LossNodes*>& nodes, double s) {
    double largest = 0;
    for (const LossNodes* part : nodes)
        for (std::size_t i = 0; i < part->loss.size(); ++i)
            largest = std::max(largest, part->log_p[i] + s * part->loss[i]);
    return largest > 20 ? largest : 0;
}

Cumulant cumulant_of(double shift, double excess, double error, double first, double second) {
    excess += std::expm1(-shift);
    const double whole = 1 + excess, mean = first / whole;
    return {shift + std::log1p(excess), mean, std::max(0.0, second / whole - mean * mean),
            (shift + std::log1p(excess + error)) * (1 + 4 * u) + 4e-300};
}

void subtract_one(Transform::Row& row) {
    if (!(row.shift > 0)) return;
    for (std::size_t j = 0; j < row.value.size(); ++j) {
        row.value[j] += std::expm1(-row.shift);
        row.error[j] += 8 * u;
    }
}

LossSum::LossSum(double s, double step, std::size_t first, std::size_t size, std::size_t terms,
                 double negligible)
    : s_(s),
      step_(step),
      first_(first),
      size_(size),
      modulus_(std::hypot(s, tau(size))),
      terms_(std::max(1.0, static_cast<double>(terms))),
      negligible_(negligible),
      log_negligible_(std::log(negligible / terms_) - std::log(4 + 4 * modulus_)) {
    turning_.start = tau(0);
}

template <class Number>
void LossSum::add(Number log_p, Number loss, double log_p_slack, double loss_slack) {
    const Number x = loss;
    const double magnitude = modulus_of(x), slack = log_p_slack, right = std::real(x),
                 log_size = std::real(log_p);
    if (log_size < log_negligible_ &&
        log_size + std::max({s_ * right, -right, std::log(1 + magnitude)}) < log_negligible_)
        return;
    const Number p = std::exp(log_p);
    // Positive, as slacks may be infinite.
    const double size = std::max(modulus_of(p), std::numeric_limits<double>::min());
    // The loss lies within u loss_slack of x, in what follows within `around` of 0, which may be more than x:
    // no error is of the first order alone.
    loss_slack = exponent_slack(loss_slack, 1 + modulus_);
    const double around = magnitude + u * loss_slack;
    if (magnitude < 0.5) {
        const Number fall = p * psi(-x);
        slope_ += fall;
        slope_size_ += modulus_of(fall);
        slope_error_ += size * (magnitude * magnitude * (slack + 16) + 1.3 * around * loss_slack);
    } else {
        const Number q = std::exp(log_p - x), fall = q - p * (1.0 - x);
        slope_ += fall;
        slope_size_ += modulus_of(fall);
        slope_error_ += modulus_of(q) * (slack + loss_slack + magnitude + 16) +
                        size * ((1 + magnitude) * (slack + 16) + loss_slack);
    }
    if (modulus_ * magnitude <= 1) {
        Number power = p * x;
        for (std::size_t k = 2; k < degree; ++k) {
            power *= x;
            moment_[k] += power;
        }
        const double second = size * magnitude * magnitude;
        second_size_ += second;
        small2_ += second * (slack + 120);
        small1_ += size * around * loss_slack;
    } else {
        const Complex w = std::exp(log_p + Complex(s_, turning_.start) * x);
        turning_.re.push_back(w.real());
        turning_.im.push_back(w.imag());
        turning_.turn.push_back(right);
        turning_.fall.push_back(std::max(0.0, std::imag(x)));
        turning_.fixed.push_back(slack + std::abs(s_) * (loss_slack + 2 * magnitude) + modulus_of(log_p) +
                                 terms_ + 16);
        turning_.turning.push_back(loss_slack + 4 * magnitude);
        mass_ += p;
        mean_ += p * x;
        mass_size_ += size;
        mean_size_ += size * magnitude;
        mass_error_ += size * (slack + 16);
        mean_error_ += size * (magnitude * (slack + 16) + loss_slack);
    }
}
template void LossSum::add(double, double, double, double);
template void LossSum::add(Complex, Complex, double, double);

void LossSum::leave_out(double p, double q, double error) {
    // E[L] = E[psi(-L)] + E[1] - E[e^{-L}]: what is left out is missing from both.
    slope_left_out_ += q - p;
    slope_error_ += error;
    left_out_ += p;
}

FallingSum::Row LossSum::values() const {
    FallingSum::Row out = turning_.row(step_, size_, 0.1 * negligible_);
    // The series of the small losses, by Horner's rule at all frequencies at once.
    std::array<Complex, degree> coefficient = moment_;
    double factorial = 1;
    for (std::size_t k = 2; k < degree; ++k) coefficient[k] /= factorial *= static_cast<double>(k);
    std::vector<double> re(size_), im(size_);
    for (std::size_t k = degree; second_size_ > 0 && k-- > 2;) {
        const double c = coefficient[k].real(), d = coefficient[k].imag();
        for (std::size_t j = 0; j < size_; ++j) {
            const double x = re[j] * s_ - im[j] * tau(j) + c;
            im[j] = re[j] * tau(j) + im[j] * s_ + d;
            re[j] = x;
        }
    }
    for (std::size_t j = 0; j < size_; ++j) {
        const Complex z(s_, tau(j)), series(re[j], im[j]);
        Complex& value = out.value[j];
        value += z * (z * series + (slope_ + slope_left_out_) - mean_) - mass_ - left_out_;
        out.error[j] += u * round_off(tau(j), modulus_of(value));
    }
    return out;
}

double LossSum::round_off(double tau, double modulus_of_value) const {
    const double z = modulus_of(Complex(s_, tau)), slope = slope_size_ + std::abs(slope_left_out_);
    return mass_error_ + mass_size_ * terms_ + z * (mean_error_ + terms_ * mean_size_) +
           z * z * (0.75 * small2_ + 1.75 * small1_ + 0.75 * terms_ * second_size_) +
           z * (slope_error_ + terms_ * slope) + 8 * modulus_of_value;
}

}  // namespace hockeystick
