// Letters whatever the locale: names of HTTP fields, hosts, schemes.
#pragma once

#include <string>
#include <string_view>

namespace lily {

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c + 'a' - 'A');
  return out;
}

}  // namespace lily
