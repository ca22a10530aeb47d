#include "backend/cpu/dispatch.h"

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lily {

// Fastest first. A build may have but one (LILY_QUICK_KERNELS).
#if !defined(LILY_ISAS)
#if defined(__x86_64__)
#define LILY_ISAS X(avx512amx) X(avx512vnni) X(avxvnni) X(avx2)
#else
#define LILY_ISAS X(neon_dotprod) X(neon)
#endif
#endif

#define X(isa)                     \
  namespace ops::isa {             \
  extern const CpuKernels kernels; \
  }
LILY_ISAS
#undef X

namespace {

#if defined(__x86_64__)
// GCC's __builtin_cpu_supports also checks that the operating system saves the wide registers.
bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"); }
bool runs_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return runs_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4));
}
bool runs_avx512vnni() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
// The matrix registers belong to a process that has asked for them.
bool runs_avx512amx() {
#if defined(__linux__)
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;  // of CPUID leaf 7, EDX
  constexpr unsigned kAvx512Bf16 = 1u << 5;                                 // of its subleaf 1, EAX
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA: headers may lack them
  unsigned a = 0, b = 0, c = 0, d = 0;
  return runs_avx512vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTile) && (d & kInt8) && (d & kBf16) &&
         __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvx512Bf16) &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#else
bool runs_neon() { return true; }
bool runs_neon_dotprod() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;  // every Apple processor that runs this build
#endif
}
#endif

struct Isa {
  const ops::CpuKernels* kernels;
  bool (*runs)();
};
#define X(isa) Isa{&ops::isa::kernels, runs_##isa},
constexpr Isa kIsas[] = {LILY_ISAS};
#undef X

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Isa& i : kIsas)
    if (i.runs()) names.push_back(i.kernels->isa);
  return names;
}

const ops::CpuKernels& cpu_kernels(const std::string& isa) {
  for (const Isa& i : kIsas)
    if (i.runs() && (isa.empty() || isa == i.kernels->isa)) return *i.kernels;
  std::string built, runs;
  for (const Isa& i : kIsas) built += (built.empty() ? "" : ", ") + std::string(i.kernels->isa);
  for (const std::string& name : available_isas()) runs += (runs.empty() ? "" : ", ") + name;
  if (isa.empty())
    throw Error(ErrorCode::unsupported, "this processor runs none of the CPU kernels (" + built + "); use --backend reference");
  throw Error(ErrorCode::unsupported,
              "no CPU kernels '" + isa + "' here; built: " + built + "; this processor runs: " + (runs.empty() ? "none" : runs));
}

}  // namespace lily
