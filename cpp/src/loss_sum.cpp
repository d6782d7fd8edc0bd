#include "hockeystick/loss_sum.hpp"

#include <algorithm>
#include <cmath>

namespace hockeystick {

double psi(double y) {
    if (std::abs(y) > 0.5) return std::expm1(y) - y;
    double sum = 0;
    for (int n = 16; n >= 3; --n) sum = (1 + sum) * y / n;
    return 0.5 * y * y * (1 + sum);
}

LossSum::LossSum(double s, double modulus, double negligible, double terms)
    : s_(s),
      modulus_(modulus),
      terms_(terms),
      log_negligible_(std::log(negligible / terms) - std::log(4 + 4 * modulus)) {}

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
        tilted_error_ += w * (slack + std::abs(s_) * (loss_slack + 2 * magnitude) + std::abs(log_p) + 300);
        phase_error_ += w * (loss_slack + 4 * magnitude);
    }
}

void LossSum::leave_out(double p, double q, double slack) {
    // E[L] = E[psi(-L)] + E[1] - E[e^{-L}]: what is left out is missing from both.
    slope_left_out_ += q - p;
    slope_error_ += (q + p) * slack;
    left_out_ += p;
}

void LossSum::values(double step, std::vector<std::complex<double>>& out) const {
    std::array<double, degree> coefficient = moment_;
    double factorial = 1;
    for (std::size_t k = 2; k < degree; ++k) coefficient[k] /= factorial *= static_cast<double>(k);

    const double slope = slope_ + slope_left_out_;
    const std::size_t large = loss_.size();
    std::vector<double> re(large), im(large), cosine(large), sine(large);
    for (std::size_t i = 0; i < large; ++i) {
        cosine[i] = std::cos(step * loss_[i]);
        sine[i] = std::sin(step * loss_[i]);
    }
    for (std::size_t j = 0; j < out.size(); ++j) {
        const double tau = step * static_cast<double>(j);
        // Rotate by one step at a time; start afresh now and then, before errors add up.
        if (j % 64 == 0) {
            for (std::size_t i = 0; i < large; ++i) {
                re[i] = weight_[i] * std::cos(tau * loss_[i]);
                im[i] = weight_[i] * std::sin(tau * loss_[i]);
            }
        } else {
            for (std::size_t i = 0; i < large; ++i) {
                const double x = re[i] * cosine[i] - im[i] * sine[i];
                im[i] = re[i] * sine[i] + im[i] * cosine[i];
                re[i] = x;
            }
        }
        // Two partial sums each: the order is fixed, and the additions overlap.
        double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
        std::size_t i = 0;
        for (; i + 1 < large; i += 2) {
            x0 += re[i];
            x1 += re[i + 1];
            y0 += im[i];
            y1 += im[i + 1];
        }
        if (i < large) {
            x0 += re[i];
            y0 += im[i];
        }
        const std::complex<double> z(s_, tau);
        std::complex<double> series = 0;
        for (std::size_t k = degree - 1; k >= 2; --k) series = series * z + coefficient[k];
        out[j] = std::complex<double>(x0 + x1, y0 + y1) - mass_ - z * mean_ + z * z * series + z * slope -
                 left_out_;
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
