// A report as a picture.
#pragma once

#include <string>

#include "bench/report.h"

namespace lily::bench {

/// A whole SVG document: a panel a phase, tokens a second over length (log2), Lily with its spread, the peer and the
/// limit that was measured beside each row. Needs nothing outside itself; follows the reader's choice of light or dark.
std::string plot_svg(const Report& report);

}  // namespace lily::bench
