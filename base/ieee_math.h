// Functions of real numbers made of operations that IEEE 754 rounds (add, subtract, multiply, divide) and exact
// ones (floor, scaling by a power of two): the same bits on every CPU. The C library's own pick a variant by
// CPU, with or without fused multiply-add, and so do not promise that.
#pragma once

namespace penstock {

// Within 2 units of the last place. -infinity of 0, NaN of anything below.
double natural_log(double x);

// e^x within 2 units of the last place; 0 below -708, infinity above 709.
double exponential(double x);

// Of radians with |x| <= 2^20, within 2^-52.
double cosine(double x);
double sine(double x);

}  // namespace penstock
