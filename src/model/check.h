// A look at every value of a model. Loading looks at the small tensors alone: a NaN in an expert that no token of a
// prompt meets would not show until one does.
#pragma once

#include <string>

#include "model/weights.h"

namespace lily {

/// Reads the scales and biases of every quantised matrix (codes are finite whatever they are) and all of every plain
/// one; the vectors were checked when they were loaded. Error(corrupt) that names `dir`, the tensor and the place of the
/// first value that is not finite. `progress`: with a bar.
void check_finite(const Weights& weights, const std::string& dir, bool progress);

/// The same of one tensor, called `module`.
void check_finite(const Matrix& matrix, const std::string& module, const std::string& dir);

}  // namespace lily
