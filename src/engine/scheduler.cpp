#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace lily {
namespace {

// Seconds of decoding for a second of reading: half of the rate, and what the changes between the two cost.
constexpr double kOwed = 1.3;

/// The log probabilities of `id` and of the `n` most likely tokens.
NextToken with_logprobs(std::span<const float> logits, std::int32_t id, int n) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(double(l - largest));
  const double norm = double(largest) + std::log(sum);
  NextToken t{.id = id, .logprob = float(double(logits[std::size_t(id)]) - norm), .top = {}};
  if (n == 0) return t;
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = std::int32_t(i);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[std::size_t(a)], y = logits[std::size_t(b)];
    return x > y || (x == y && a < b);
  };
  const auto count = std::min<std::ptrdiff_t>(n, std::ptrdiff_t(order.size()));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), better);
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const std::int32_t other = order[std::size_t(i)];
    t.top.push_back({other, float(double(logits[std::size_t(other)]) - norm)});
  }
  return t;
}

}  // namespace

struct Scheduler::Job {
  std::int64_t number = 0;
  Request request;
  Sampler sampler;
  std::unique_ptr<Session> session;  // with a slot alone
  Ended ended;
  Clock::time_point submitted = Clock::now(), first;
  std::int64_t generated = 0, limit = 0;
  std::vector<std::int32_t> said;  // what it had generated when it gave its memory back …
  std::size_t said_again = 0;      // … and how much of it is in its session again
  bool gave_way = false, done = false;

  explicit Job(Request r) : request(std::move(r)), sampler(request.sampling) {}
  bool reading() const { return session->to_read() > 0; }
  /// Tokens that its session will have before long; all of them where it has given way before, or it might do so block by block.
  std::int64_t soon() const {
    const std::int64_t most = request.max_tokens > 0 ? request.max_tokens : kKvBlockTokens;
    return std::int64_t(request.ids.size()) + (said.empty() ? std::max(generated, std::min<std::int64_t>(most, kKvBlockTokens)) : limit);
  }
};

Scheduler::Scheduler(Engine& engine, SchedulerOptions options) : engine_(engine), options_(options) {
  if (options_.parallel < 1) throw Error(ErrorCode::invalid_argument, "a server needs at least one slot");
  cache_ = std::make_shared<PrefixCache>(CacheLimits{.bytes = options_.cache_bytes});
  // What one conversation alone may grow to: its blocks, its state, and the snapshot that the next turn begins with.
  std::int64_t low = 0, high = engine_.max_context();
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (bytes_of(middle) + bytes_of(0) <= options_.cache_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  window_ = low;
  if (window_ < 2) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} bytes for conversations (--cache-bytes): one of any length needs {}", options_.cache_bytes, bytes_of(2) + bytes_of(0)));
  }
  worker_ = std::thread([this] { work(); });
  if (options_.store) writer_ = std::thread([this] { write_behind(); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  worker_.join();
  if (!options_.store) return;
  writer_.join();
  store_all();
}

/// Writes snapshots while nobody is waiting for the memory and the disk; after a minute of work all the same, since a process may be
/// killed.
void Scheduler::write_behind() {
  constexpr auto kTick = std::chrono::seconds(1);
  constexpr int kPatience = 60;
  std::unique_lock lock(mutex_);
  for (int ticks = 0; !stopping_; ++ticks) {
    wake_.wait_for(lock, kTick, [&] { return stopping_; });
    if (stopping_ || ((status_.running > 0 || !queue_.empty()) && ticks < kPatience)) continue;
    ticks = 0;
    lock.unlock();
    store_all();
    lock.lock();
  }
}

void Scheduler::store_all() {
  const std::int64_t kept = cache_->use().kept;
  if (kept == stored_) return;
  for (const auto& snapshot : cache_->all()) options_.store->keep(snapshot);
  stored_ = kept;
}

std::int64_t Scheduler::bytes_of(std::int64_t tokens) const {
  const StateLayout& layout = engine_.backend().state_layout();
  return layout.recurrent_bytes() + std::int64_t(engine_.shape().vocab) * 4 + tokens * 4 + kv_blocks(tokens) * layout.kv_block_bytes;
}

/// … of which the blocks that lie wholly within the first `tokens` are.
std::int64_t Scheduler::shared_bytes(std::int64_t tokens) const {
  return tokens / kKvBlockTokens * engine_.backend().state_layout().kv_block_bytes;
}

std::optional<std::int64_t> Scheduler::submit(Request request) {
  const auto length = std::int64_t(request.ids.size());
  if (length == 0) throw Error(ErrorCode::invalid_argument, "the prompt is empty");
  engine_.check_ids(request.ids);
  if (length >= window_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the prompt has {} tokens, and the context window of {} must hold it and an answer", length, window_));
  }
  Jobs job;
  job.push_back(std::make_unique<Job>(std::move(request)));
  {
    const std::lock_guard lock(mutex_);
    if (int(queue_.size()) + arriving_ >= options_.queue) return std::nullopt;
    ++arriving_;
    job.front()->number = ++last_number_;
  }
  const std::int64_t number = job.front()->number;
  std::exception_ptr failed;
  try {
    job.front()->request.listener->accepted();
  } catch (...) {
    failed = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  --arriving_;
  if (failed) std::rethrow_exception(failed);
  queue_.splice(queue_.end(), job);
  wake_.notify_all();
  return number;
}

void Scheduler::cancel(std::int64_t number) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(number);
  wake_.notify_all();
}

SchedulerStatus Scheduler::status() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatus s = status_;
  s.waiting = int(queue_.size());
  return s;
}

void Scheduler::work() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || !jobs_.empty(); });
      if (stopping_) break;
    }
    try {
      take_turn();
    } catch (...) {  // not in what a request does: want of memory in between
      for (const auto& job : jobs_)
        if (!job->done) end(*job, Finish::stopped, std::current_exception());
    }
    settle();
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.splice(jobs_.end(), queue_);
    status_.alive = false;
  }
  for (const auto& job : jobs_) end(*job, Finish::stopped);
  settle();
}

void Scheduler::take_turn() {
  drop_cancelled();
  settle();
  admit();
  bool reading = false, answering = false;
  for (const auto& job : jobs_) (job->reading() ? reading : answering) = true;
  if (answering && (debt_ > 0 || !reading)) {
    debt_ = std::max(0.0, debt_ - decode_step());
  } else if (reading) {
    const double seconds = read_chunk(answering ? options_.busy_chunk : longest_chunk());
    debt_ = answering ? kOwed * seconds : 0;
  }
}

/// What has ended gives up its place before its listener hears of it: who asks for the status then finds it gone.
void Scheduler::settle() {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto next = std::next(job);
    if ((*job)->done) over_.splice(over_.end(), jobs_, job);
    job = next;
  }
  fit_memory();
  for (const auto& job : over_) job->request.listener->ended(job->ended);
  over_.clear();
}

void Scheduler::drop_cancelled() {
  std::vector<std::int64_t> numbers;
  Jobs waiting;
  {
    const std::lock_guard lock(mutex_);
    numbers.swap(cancelled_);
    for (const std::int64_t number : numbers) {
      const auto found = std::find_if(queue_.begin(), queue_.end(), [&](const auto& job) { return job->number == number; });
      if (found != queue_.end()) waiting.splice(waiting.end(), queue_, found);
    }
    status_.cancelled += std::int64_t(waiting.size());
  }
  for (const auto& job : waiting) end(*job, Finish::stopped);
  over_.splice(over_.end(), waiting);
  for (const auto& job : jobs_) {
    if (std::find(numbers.begin(), numbers.end(), job->number) == numbers.end()) continue;
    if (job->reading() && job->session->computed() > 0) keep_snapshot(*job);  // who asks again goes on from here
    end(*job, Finish::stopped);
    const std::lock_guard lock(mutex_);
    ++status_.cancelled;
  }
}

/// Gives slots in the order of arrival, as long as there is memory: nobody overtakes a request that waits for it.
void Scheduler::admit() {
  while (int(jobs_.size()) < options_.parallel) {
    Jobs job;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      std::int64_t bytes = bytes_of(queue_.front()->soon()) - shared_bytes(cache_->known(queue_.front()->request.ids));
      for (const auto& other : jobs_) bytes += std::max(other->session->own_bytes(), bytes_of(other->soon()) - shared_bytes(other->ended.prompt.reused));
      if (!jobs_.empty() && bytes > options_.cache_bytes) return;
      job.splice(job.end(), queue_, queue_.begin());
    }
    try {
      start(*job.front());
      jobs_.splice(jobs_.end(), job);
    } catch (...) {
      end(*job.front(), Finish::stopped, std::current_exception());
      over_.splice(over_.end(), job);
    }
  }
}

void Scheduler::start(Job& job) {
  const std::vector<std::int32_t>& ids = job.request.ids;
  if (options_.store)
    if (const auto stored = options_.store->load(ids, cache_->known(ids))) cache_->keep(stored, ids);
  const Parting parting = cache_->parting(ids);
  job.session = engine_.session(cache_);
  const SyncReport prompt = job.session->begin(ids, job.request.snapshot_at);
  if (job.gave_way) return;  // it had begun before
  job.ended.queue_seconds = seconds_since(job.submitted);
  job.ended.prompt = prompt;
  job.sampler.see_prompt(ids);
  job.limit = std::min(window_ - std::int64_t(ids.size()), job.request.max_tokens > 0 ? job.request.max_tokens : INT64_MAX);
  {
    const std::lock_guard lock(mutex_);
    ++status_.requests;
    status_.cached_tokens += prompt.reused;
    status_.prompt_tokens += prompt.reused + prompt.computed;
    status_.last_hit = prompt.reused;
    status_.last_prompt = prompt.reused + prompt.computed;
    status_.last_parting = parting;
    const auto from = ids.begin() + std::min(parting.cached_from, std::int64_t(ids.size()));
    status_.last_ids.assign(from, from + std::min<std::ptrdiff_t>(std::ptrdiff_t(parting.cached.size()), ids.end() - from));
  }
  job.request.listener->started(job.ended.prompt);
}

/// Seconds that it took.
double Scheduler::decode_step() {
  const auto begin = Clock::now();
  std::vector<Job*> answering;
  std::vector<Session*> sessions;
  for (const auto& job : jobs_) {
    if (job->reading()) continue;
    answering.push_back(job.get());
    sessions.push_back(job->session.get());
  }
  const std::vector<std::exception_ptr> failed = engine_.decode(sessions);
  for (std::size_t i = 0; i < answering.size(); ++i) {
    if (failed[i]) {
      end(*answering[i], Finish::stopped, failed[i]);
    } else {
      give_token(*answering[i]);
    }
  }
  const double seconds = seconds_since(begin);
  const std::lock_guard lock(mutex_);
  status_.decode_seconds += seconds;
  status_.generated_tokens += std::int64_t(answering.size());
  return seconds;
}

std::int64_t Scheduler::longest_chunk() const {
  constexpr std::int64_t kFirst = 512, kLeast = 64;
  const std::int64_t most = options_.chunk > 0 ? options_.chunk : engine_.backend().max_rows();
  return std::min(most, rate_ > 0 ? std::max(kLeast, std::int64_t(rate_ * options_.chunk_seconds)) : kFirst);
}

/// Prompts with a common beginning that came at once take turns reading it: each goes on from where another one has come.
void Scheduler::catch_up(Job& job) {
  const std::int64_t here = job.session->computed();
  if (cache_->known(job.request.ids) <= here) return;
  job.session->begin(job.request.ids, job.request.snapshot_at);
  if (job.gave_way) return;  // each token of its prompt has been counted
  const std::int64_t gained = job.session->computed() - here;
  job.ended.prompt.reused += gained;
  job.ended.prompt.computed -= gained;
  const std::lock_guard lock(mutex_);
  status_.cached_tokens += gained;
}

/// Of prompts that are being read, those that can go on in one pass: none that could soon go on from what an earlier one is reading.
std::vector<Scheduler::Job*> Scheduler::who_reads() {
  std::vector<Job*> chosen;
  for (const auto& job : jobs_) {
    if (!job->reading()) continue;
    const auto& ids = job->request.ids;
    const bool waits = std::any_of(chosen.begin(), chosen.end(), [&](const Job* other) {
      const auto& theirs = other->request.ids;
      const std::int64_t common = std::mismatch(ids.begin(), ids.end(), theirs.begin(), theirs.end()).first - ids.begin();
      const std::int64_t known = std::max(job->session->computed(), other->session->computed());
      const auto helps = [&](std::int64_t snapshot) { return snapshot > known && snapshot <= common; };
      const auto& stops = other->request.snapshot_at;
      return helps(std::int64_t(theirs.size())) || std::any_of(stops.begin(), stops.end(), helps);
    });
    if (!waits) chosen.push_back(job.get());
  }
  return chosen;
}

/// The next chunk of the prompt whose turn it is, and what of others fits into the same pass. Seconds that it took.
double Scheduler::read_chunk(std::int64_t longest) {
  const auto begin = Clock::now();
  std::vector<Job*> reading = who_reads();
  const auto turn = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job.get() == reading.front(); });
  jobs_.splice(jobs_.end(), jobs_, turn);  // the others' turns come first now
  const auto tell = [](Job& job) { job.request.listener->progress(job.session->computed(), std::int64_t(job.request.ids.size())); };
  for (Job* job : reading) {
    try {
      catch_up(*job);
      if (!job->reading()) tell(*job);
    } catch (...) {
      end(*job, Finish::stopped, std::current_exception());
    }
  }
  std::erase_if(reading, [](const Job* job) { return job->done || !job->reading(); });
  std::vector<Session*> sessions;
  std::vector<std::int64_t> from;
  for (Job* job : reading) {
    sessions.push_back(job->session.get());
    from.push_back(job->session->computed());
  }
  const std::vector<std::exception_ptr> failed = engine_.read(sessions, longest);
  const double seconds = seconds_since(begin);
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < reading.size(); ++i) {
    Job& job = *reading[i];
    if (failed[i]) {
      end(job, Finish::stopped, failed[i]);
      continue;
    }
    const std::int64_t read = job.session->computed() - from[i];
    if (read == 0) continue;  // there was no room for it
    tokens += read;
    job.ended.prefill_seconds += seconds;
    tell(job);
  }
  if (tokens >= 32) rate_ = double(tokens) / seconds;
  const std::lock_guard lock(mutex_);
  status_.prefill_seconds += seconds;
  return seconds;
}

/// One token from the logits that are there.
void Scheduler::give_token(Job& job) {
  try {
    if (job.said_again < job.said.size()) return job.session->append(job.said[job.said_again++]);
    if (job.generated >= job.limit) return end(job, Finish::length);
    const std::span<const float> logits = job.session->logits();
    Guide* const guide = job.request.guide.get();
    std::int32_t id;
    if (const auto forced = guide ? guide->forced() : std::nullopt) {
      id = *forced;
    } else if (guide) {
      std::vector<float> allowed(logits.begin(), logits.end());
      id = job.sampler.sample(guide->restrict(allowed) ? std::span<const float>(allowed) : logits);
    } else {
      id = job.sampler.sample(logits);
    }
    NextToken token{.id = id, .logprob = 0, .top = {}};
    if (job.request.logprobs) token = with_logprobs(logits, id, *job.request.logprobs);
    job.session->append(id);
    job.sampler.accept(id);
    if (guide) guide->accept(id);
    if (job.generated++ == 0) {
      job.first = Clock::now();
    } else {
      ++job.ended.decode_steps;
      job.ended.decode_seconds = seconds_since(job.first);
    }
    const auto& ends = job.request.end_ids;
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) return end(job, Finish::end_token);
    if (!job.request.listener->token(token)) return end(job, Finish::stopped);
    if (job.generated >= job.limit) end(job, Finish::length);
  } catch (...) {
    end(job, Finish::stopped, std::current_exception());
  }
}

void Scheduler::end(Job& job, Finish finish, std::exception_ptr error) {
  job.done = true;
  job.ended.finish = finish;
  job.ended.error = error;
  // The next turn begins with this one, or with a part of it that its prompt's snapshots cover.
  if (!error && job.session && job.generated > 1) keep_snapshot(job);
  job.session.reset();
  if (!error) return;
  const std::lock_guard lock(mutex_);
  ++status_.failed;
}

/// One that finds no memory is a miss of a later turn, and no error of this one.
void Scheduler::keep_snapshot(Job& job) {
  try {
    job.session->keep_snapshot();
  } catch (const std::bad_alloc&) {
    log_warning("no memory for a snapshot: the next turn reads this one again");
  }
}

std::int64_t Scheduler::running_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& job : jobs_) bytes += job->session->own_bytes();
  return bytes;
}

/// Snapshots make room for what runs; where that is not enough, the request that came last waits for its turn again.
void Scheduler::fit_memory() {
  while (true) {
    const std::int64_t bytes = running_bytes();
    cache_->reserve(bytes);
    // Blocks that the cache has let go may be a conversation's own now.
    const std::int64_t now = running_bytes();
    {
      const std::lock_guard lock(mutex_);
      status_.running = int(jobs_.size());
      status_.reading = int(std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->reading(); }));
      status_.running_bytes = now;
    }
    if (now == bytes && (bytes <= options_.cache_bytes || jobs_.size() <= 1)) return;
    if (now == bytes)
      wait_again(std::max_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) { return a->number < b->number; }));
  }
}

/// Gives its memory back. What it has said is computed again, token by token, when it has a slot again: that gives the same bits.
void Scheduler::wait_again(Jobs::iterator turn) {
  Job& job = **turn;
  if (job.generated > std::int64_t(job.said.size())) {
    const auto& tokens = job.session->tokens();
    job.said.assign(tokens.begin() + std::ptrdiff_t(job.request.ids.size()), tokens.end());
  }
  job.said_again = 0;
  job.gave_way = true;
  job.session.reset();
  const std::lock_guard lock(mutex_);
  queue_.splice(queue_.begin(), jobs_, turn);
}

}  // namespace lily
