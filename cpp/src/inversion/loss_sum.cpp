#include "inversion/loss_sum.hpp"

#include <algorithm>
#include <cmath>

#include "hockeystick/parallel.hpp"
#include "numerics/constants.hpp"

namespace hockeystick {

double psi(double y) {
    if (std::abs(y) > 0.5) return std::expm1(y) - y;
    double sum = 0;
    for (int n = 16; n >= 3; --n) sum = (1 + sum) * y / n;
    return 0.5 * y * y * (1 + sum);
}

TiltedSums tilted_sums(const LossNodes& nodes, double shift, double s, double modulus) {
    TiltedSums out;
    for (std::size_t i = 0; i < nodes.loss.size(); ++i) {
        const double loss = nodes.loss[i], y = s * loss, log_p = nodes.log_p[i] - shift;
        // Far out nothing counts, and exp() underflows, slowly.
        if (log_p + std::max({0.0, y, -loss}) < -700) continue;
        const double p = exp_or_0(log_p), tilted = exp_or_0(log_p + y);
        const double fall = std::abs(loss) < 0.5 ? p * psi(-loss) : exp_or_0(log_p - loss) - p * (1 - loss);
        out.value += std::abs(y) < 0.5 ? p * psi(y) : tilted - p * (1 + y);
        out.first += std::abs(y) < 0.5 ? p * loss * std::expm1(y) : (tilted - p) * loss;
        out.second += tilted * loss * loss;
        out.slope += fall;
        const double size = tilted + p * (1 + std::abs(y)) + modulus * (fall + p),
                     slack = nodes.log_p_slack[i] + (1 + std::abs(s)) * nodes.loss_slack[i];
        out.size += size;
        out.rounding += size * (slack + std::abs(log_p));
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

LossSum::LossSum(const LossNodes& nodes, double shift, double s, double modulus, double negligible)
    : s_(s),
      modulus_(modulus),
      terms_(std::max(1.0, static_cast<double>(nodes.loss.size()))),
      log_negligible_(std::log(negligible / terms_) - std::log(4 + 4 * modulus)) {
    for (std::size_t i = 0; i < nodes.loss.size(); ++i)
        add(nodes.log_p[i] - shift, nodes.loss[i], nodes.log_p_slack[i] + 2 * shift, nodes.loss_slack[i]);
}

void LossSum::add(double log_p, double loss, double log_p_slack, double loss_slack) {
    const double x = loss, magnitude = std::abs(x), slack = log_p_slack;
    if (log_p + std::max({0.0, s_ * x, -x, std::log(1 + magnitude)}) < log_negligible_) return;
    const double p = std::exp(log_p);
    if (magnitude < 0.5) {
        slope_ += p * psi(-x);
        slope_error_ += p * magnitude * (magnitude * (slack + 16) + 1.3 * loss_slack);
    } else {
        const double q = std::exp(log_p - x);
        slope_ += q - p * (1 - x);
        slope_error_ +=
            q * (slack + loss_slack + magnitude + 16) + p * ((1 + magnitude) * (slack + 16) + loss_slack);
    }
    if (modulus_ * magnitude <= 1) {
        double power = p * x;
        for (std::size_t k = 2; k < degree; ++k) {
            power *= x;
            moment_[k] += power;
        }
        small2_ += p * x * x * (slack + 120);
        small1_ += p * magnitude * loss_slack;
    } else {
        const double w = std::exp(log_p + s_ * x);
        loss_.push_back(x);
        weight_.push_back(w);
        tilted_ += w;
        mass_ += p;
        mean_ += p * x;
        mean_size_ += p * magnitude;
        mass_error_ += p * (slack + 16);
        mean_error_ += p * (magnitude * (slack + 16) + loss_slack);
        tilted_error_ += w * (slack + std::abs(s_) * (loss_slack + 2 * magnitude) + std::abs(log_p) + 640);
        phase_error_ += w * (loss_slack + 4 * magnitude);
    }
}

void LossSum::leave_out(double p, double q, double error) {
    // E[L] = E[psi(-L)] + E[1] - E[e^{-L}]: what is left out is missing from both.
    slope_left_out_ += q - p;
    slope_error_ += error;
    left_out_ += p;
}

void LossSum::values(double step, std::vector<std::complex<double>>& out) const {
    std::array<double, degree> coefficient = moment_;
    double factorial = 1;
    for (std::size_t k = 2; k < degree; ++k) coefficient[k] /= factorial *= static_cast<double>(k);

    const double slope = slope_ + slope_left_out_;
    add_turning(step, out);
    for (std::size_t j = 0; j < out.size(); ++j) {
        const std::complex<double> z(s_, step * static_cast<double>(j));
        std::complex<double> series = 0;
        for (std::size_t k = degree - 1; k >= 2; --k) series = series * z + coefficient[k];
        out[j] = out[j] - mass_ - z * mean_ + z * z * series + z * slope - left_out_;
    }
}

// out[j] = sum of weight e^{i j step loss}, in blocks that stay in the cache. Each term is turned by one step
// at a time, and at every 64th by 64 at once, so that none has more than 63 + 64 turns behind it.
void LossSum::add_turning(double step, std::vector<std::complex<double>>& out) const {
    constexpr std::size_t block = 512, lanes = 4, leap = 64;
    struct Block {
        std::array<double, block> re, im, cosine, sine;
    };
    std::fill(out.begin(), out.end(), 0.0);
    Block one, many;  // the terms at j and their turn by one step; the same at the last multiple of 64
    const auto turn = [](Block& terms, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            const double x = terms.re[i] * terms.cosine[i] - terms.im[i] * terms.sine[i];
            terms.im[i] = terms.re[i] * terms.sine[i] + terms.im[i] * terms.cosine[i];
            terms.re[i] = x;
        }
    };
    for (std::size_t first = 0; first < loss_.size(); first += block) {
        const std::size_t count = std::min(block, loss_.size() - first);
        const std::size_t padded = (count + lanes - 1) / lanes * lanes;
        interruption_point();
        for (std::size_t i = 0; i < padded; ++i) {
            const double loss = i < count ? loss_[first + i] : 0;
            one.re[i] = many.re[i] = i < count ? weight_[first + i] : 0;
            one.im[i] = many.im[i] = 0;
            one.cosine[i] = std::cos(step * loss);
            one.sine[i] = std::sin(step * loss);
            if (out.size() <= leap) continue;
            const double far = static_cast<double>(leap) * step * loss;
            many.cosine[i] = std::cos(far);
            many.sine[i] = std::sin(far);
        }
        for (std::size_t j = 0; j < out.size(); ++j) {
            if (j > 0 && j % leap == 0) {
                turn(many, padded);
                one.re = many.re;
                one.im = many.im;
            } else if (j > 0) {
                turn(one, padded);
            }
            // The order of the additions is fixed, and they overlap.
            std::array<double, lanes> x{}, y{};
            for (std::size_t i = 0; i < padded; i += lanes)
                for (std::size_t lane = 0; lane < lanes; ++lane) {
                    x[lane] += one.re[i + lane];
                    y[lane] += one.im[i + lane];
                }
            out[j] += std::complex<double>((x[0] + x[1]) + (x[2] + x[3]), (y[0] + y[1]) + (y[2] + y[3]));
        }
    }
}

double LossSum::round_off(double tau, std::complex<double> value) const {
    const double z = std::hypot(s_, tau), second = 0.5 * moment_[2],
                 slope = slope_ + std::abs(slope_left_out_);
    return tilted_error_ + tilted_ * static_cast<double>(loss_.size()) + tau * phase_error_ + mass_error_ +
           mass_ * terms_ + z * (mean_error_ + terms_ * mean_size_) +
           z * z * (0.75 * small2_ + 1.75 * small1_ + 1.5 * terms_ * second) +
           z * (slope_error_ + terms_ * slope) + 8 * std::abs(value);
}

}  // namespace hockeystick
