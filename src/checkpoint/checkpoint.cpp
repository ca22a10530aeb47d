#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_fault.h"

namespace lily {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

/// "a, b, c and 12 more"
std::string first_few(const std::set<std::string>& names) {
  std::string out;
  std::size_t n = 0;
  for (const std::string& name : names) {
    if (n == 3) return fmt::format("{} and {} more", out, names.size() - n);
    out += (n++ ? ", " : "") + name;
  }
  return out;
}

/// A shard name out of the index must be a plain file name: it is joined to the directory.
bool plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.find('\\') == std::string::npos &&
         name[0] != '.' && name.find('\0') == std::string::npos;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& dir) : dir_(dir) {
  if (!std::filesystem::is_directory(dir))
    throw Error(ErrorCode::not_found, fmt::format("{}: expected a checkpoint directory", dir.string()));
  config_text_ = read_text_file(config_path(), 16u << 20);
  read_index();
  open_shards();
  compare_with_index();
}

void Checkpoint::read_index() {
  const auto path = dir_ / kIndexName;
  if (!is_there(path)) return;
  // A hint that cannot be read is worth a warning, not a refusal.
  const std::string text = read_text_file(path);
  nlohmann::json json;
  try {
    json = parse_json_file(text, path.string());
  } catch (const Error& error) {
    warnings_.push_back(fmt::format("{}; the index is ignored", error.what()));
    return;
  }
  const auto map = json.is_object() && json.contains("weight_map") ? json["weight_map"] : nlohmann::json();
  const bool usable = map.is_object() && std::all_of(map.begin(), map.end(), [](auto& v) { return v.is_string(); });
  if (!usable) {
    warnings_.push_back(fmt::format(
        "{}: weight_map: expected an object of tensor names and file names; the index is ignored", path.string()));
    return;
  }
  for (const auto& [tensor, shard] : map.items()) index_[tensor] = shard.get<std::string>();
  if (const auto meta = json.find("metadata"); meta != json.end() && meta->is_object()) {
    const auto total = meta->find("total_size");
    if (total != meta->end() && total->is_number())
      index_total_bytes_ = std::uint64_t(std::max(0.0, total->get<double>()));
  }
}

void Checkpoint::open_shards() {
  std::set<std::filesystem::path> named, others;
  for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
    const std::string name = entry.path().filename().string();
    if (name[0] == '.' || entry.path().extension() != ".safetensors") continue;
    (name.rfind("model", 0) == 0 ? named : others).insert(entry.path());
  }
  for (const auto& [tensor, shard] : index_)
    if (plain_name(shard) && std::filesystem::exists(dir_ / shard)) named.insert(dir_ / shard);
  std::set<std::filesystem::path>& chosen = named.empty() ? others : named;
  if (chosen.empty()) {
    std::set<std::string> expected;
    for (const auto& [tensor, shard] : index_) expected.insert(shard);
    throw Error(ErrorCode::not_found,
                fmt::format("{}: no *.safetensors file in the directory{}", dir_.string(),
                            expected.empty() ? "" : fmt::format(" ({} names {})", kIndexName, first_few(expected))) +
                    " (an interrupted download or synth? run it again)");
  }
  for (const auto& path : chosen) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    const SafetensorsFile& file = *files_.back();
    for (const TensorInfo& info : file.tensors()) {
      const auto [at, fresh] = by_name_.emplace(info.name, tensors_.size());
      if (!fresh)
        throw Error(ErrorCode::corrupt,
                    fmt::format("{}: tensor {} is in two shards: {} and {}", dir_.string(), info.name,
                                tensors_[at->second].file_name(), path.filename().string()));
      tensors_.push_back({&file, &info});
    }
  }
  if (&chosen == &named)
    for (const auto& path : others)
      if (!named.count(path))
        warnings_.push_back(fmt::format("{}: not a shard of the model, not read", path.filename().string()));
}

void Checkpoint::compare_with_index() {
  if (index_.empty()) return;
  std::set<std::string> gone_files, gone_tensors, moved, unlisted;
  for (const auto& [tensor, shard] : index_) {
    const Tensor* found = find(tensor);
    const bool shard_there = plain_name(shard) && std::filesystem::exists(dir_ / shard);
    if (!found) gone_tensors.insert(tensor);
    if (!shard_there) gone_files.insert(shard);
    if (found && shard_there && found->file_name() != shard) moved.insert(tensor);
  }
  for (const Tensor& tensor : tensors_)
    if (!index_.count(tensor.info->name)) unlisted.insert(tensor.info->name);
  const auto warn = [&](const std::set<std::string>& names, const char* what) {
    if (!names.empty())
      warnings_.push_back(
          fmt::format("{} {}: {} (the shard headers are believed)", kIndexName, what, first_few(names)));
  };
  warn(gone_files, "names files that are not there");
  warn(gone_tensors, "names tensors that no shard has");
  warn(moved, "places tensors in another shard than they are in");
  warn(unlisted, "does not list tensors that are there");
}

const Checkpoint::Tensor* Checkpoint::find(const std::string& name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

std::uint64_t Checkpoint::file_bytes() const {
  std::uint64_t total = 0;
  for (const auto& file : files_) total += file->size();
  return total;
}

std::string Checkpoint::absence_hint(const std::string& suffix) const {
  for (const auto& [tensor, shard] : index_) {
    const bool matches = tensor.size() >= suffix.size() &&
                         tensor.compare(tensor.size() - suffix.size(), suffix.size(), suffix) == 0 &&
                         (tensor.size() == suffix.size() || tensor[tensor.size() - suffix.size() - 1] == '.');
    if (!matches) continue;
    if (plain_name(shard) && std::filesystem::exists(dir_ / shard))
      return fmt::format("{} places it in {}, which is there and does not hold it", kIndexName, shard);
    std::set<std::string> missing;
    std::uint64_t present = 0;
    for (const auto& [other, other_shard] : index_)
      if (!plain_name(other_shard) || !std::filesystem::exists(dir_ / other_shard)) missing.insert(other_shard);
    for (const Tensor& t : tensors_) present += t.info->bytes;
    std::string bytes =
        index_total_bytes_ > present
            ? fmt::format("{} of {} bytes of the model are not there", index_total_bytes_ - present, index_total_bytes_)
            : fmt::format("its size is not known, {} bytes are there", present);
    return fmt::format("shard {} is missing; {}{} (an interrupted download or synth? run it again)", shard, bytes,
                       missing.size() > 1 ? fmt::format("; missing shards: {}", first_few(missing)) : "");
  }
  // No index: the shards' own numbering tells when one is gone (model-00002-of-00004.safetensors).
  for (const auto& file : files_) {
    const std::string name = file->path().filename().string();
    const auto of = name.find("-of-");
    if (of == std::string::npos || of < 5) continue;
    const std::size_t digits_end = name.find_first_not_of("0123456789", of + 4);
    const std::string total_text = name.substr(of + 4, digits_end - of - 4);
    const std::size_t dash = name.rfind('-', of - 1);
    if (total_text.empty() || total_text.size() > 6 || dash == std::string::npos) continue;
    const int total = std::stoi(total_text);
    const std::size_t width = of - dash - 1;
    for (int i = 1; i <= total; ++i) {
      const std::string shard = fmt::format("{}{:0{}}{}", name.substr(0, dash + 1), i, width, name.substr(of));
      if (!std::filesystem::exists(dir_ / shard))
        return fmt::format(
            "shard {} is missing ({} of {} shards, {} bytes, are there; an interrupted download or synth? run it "
            "again)",
            shard, files_.size(), total, file_bytes());
    }
    break;
  }
  return "";
}

}  // namespace lily
