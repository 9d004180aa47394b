// What both npm peers share: the arguments, the JSON lines, the payload, the clock and the producer thread.
// A program prints one JSON object per line on stdout; everything else it has to say goes to stderr.
import { readFileSync, writeSync } from 'node:fs'
import { Worker, isMainThread, workerData } from 'node:worker_threads'

export const BACKLOG_MAX = 20_000

// `program verb --name value --flag` becomes { verb, name: 'value', flag: true }.
export function readArguments(words = process.argv.slice(2)) {
  const given = { verb: words[0] }
  for (let at = 1; at < words.length; at++) {
    const name = words[at].replace(/^--/, '')
    const next = words[at + 1]
    if (next === undefined || next.startsWith('--')) given[name] = true
    else given[name] = words[++at]
  }
  const number = (name, otherwise) => (given[name] === undefined ? otherwise : Number(given[name]))
  return {
    verb: given.verb,
    kind: given.kind ?? 'noop',
    jobs: number('jobs', 2000),
    payload: number('payload', 200),
    next: given.next === true,
    mode: given.mode ?? 'best',
    batch: given.batch === undefined ? undefined : Number(given.batch),
    seconds: number('seconds', 10),
    everyMs: number('every-ms', 50),
    pollOnly: given['poll-only'] === true,
    load: number('load', 0),
    again: given.again === true,
    limitS: number('limit-s', Math.max(120, number('seconds', 0) + 60)),
  }
}

// Written at once: the harness reads lines of a program that it will kill.
export function emit(object) {
  writeSync(1, JSON.stringify(object) + '\n')
}

export function unsupported(why) {
  emit({ event: 'unsupported', why })
}

// From the package's own manifest: not every package exports it for `import`.
export function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), 'utf8')).version
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
export const secondsSince = (start) => (performance.now() - start) / 1000

const LETTERS = randomLetters(1 << 20)

function randomLetters(length) {
  const letters = Buffer.alloc(length)
  let state = 0x9e3779b9
  for (let at = 0; at < length; at++) {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    letters[at] = 97 + ((state >>> 8) % 26)
  }
  return letters.toString('latin1')
}

// About `bytes` bytes of JSON in all; the fill is another stretch of pseudo-random letters for every number.
export function makePayload(number, bytes) {
  const frame = 22 + String(number).length
  const length = Math.max(0, bytes - frame)
  const start = (number * 7919) % Math.max(1, LETTERS.length - length)
  return { number, fill: LETTERS.slice(start, start + length) }
}

// The no-op handler's whole work: the driver has decoded the JSON, the handler checks that it got its number.
export function checkPayload(payload) {
  if (typeof payload?.number !== 'number') throw new Error('payload without a number')
}

// Splits 0..jobs into chunks of at most `size` made by `make(number)`.
export function makeChunks(jobs, size, make) {
  const chunks = []
  for (let from = 0; from < jobs; from += size) {
    const count = Math.min(size, jobs - from)
    chunks.push(Array.from({ length: count }, (_, at) => make(from + at)))
  }
  return chunks
}

// Sends every chunk with at most `lanes` calls in flight.
export async function sendChunks(chunks, lanes, send) {
  let at = 0
  const lane = async () => {
    while (at < chunks.length) await send(chunks[at++])
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}

// Waits until `handled()` reaches `jobs`, then until the peer's own table has nothing left to complete.
export async function untilDurable(jobs, handled, leftInTable) {
  while (handled() < jobs) await sleep(1)
  const handlers = performance.now()
  while (await leftInTable()) await sleep(5)
  return handlers
}

// The producer of `life` and `hold` is a thread of the same process with an event loop and connections of its own,
// so that making and sending jobs does not take the worker's only thread.
const ENQUEUED = 0
const DONE = 1
const STOP = 2

export function startProducer(moduleUrl, { jobs, payload }) {
  const counters = new Int32Array(new SharedArrayBuffer(12))
  const thread = new Worker(new URL(moduleUrl), { workerData: { counters, jobs, payload }, argv: ['producer'] })
  thread.on('error', (error) => {
    console.error(error)
    process.exit(1)
  })
  const online = new Promise((resolve) => thread.once('message', resolve))
  return {
    ready: online,
    go: () => thread.postMessage('go'),
    done: (count) => Atomics.add(counters, DONE, count),
    doneSoFar: () => Atomics.load(counters, DONE),
    enqueuedSoFar: () => Atomics.load(counters, ENQUEUED),
    stop: async () => {
      Atomics.store(counters, STOP, 1)
      await thread.terminate()
    },
  }
}

// The thread's side: `open()` gives { send(chunk) }, whose promise resolves after the commit.
export async function runProducer({ open, size, lanes, make }) {
  const { parentPort } = await import('node:worker_threads')
  const { counters, jobs, payload } = workerData
  const { send } = await open()
  const go = new Promise((resolve) => parentPort.once('message', resolve))
  parentPort.postMessage('ready')
  await go
  let started = 0
  const lane = async () => {
    while (started < jobs && Atomics.load(counters, STOP) === 0) {
      if (started + size - Atomics.load(counters, DONE) > BACKLOG_MAX) {
        await sleep(1)
        continue
      }
      const count = Math.min(size, jobs - started)
      const from = started
      started += count
      await send(Array.from({ length: count }, (_, at) => make(from + at, payload)))
      Atomics.add(counters, ENQUEUED, count)
    }
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}

export const inProducerThread = !isMainThread

// One line per second: the jobs handled in it and the backlog at its end.
export async function printSeconds(seconds, producer) {
  const start = performance.now()
  let before = 0
  for (let second = 1; second <= seconds; second++) {
    await sleep(start + second * 1000 - performance.now())
    const done = producer.doneSoFar()
    // A job may be handled before its producer has seen the commit return.
    const backlog = Math.max(0, producer.enqueuedSoFar() - done)
    emit({ event: 'second', second, done: done - before, backlog })
    before = done
  }
}

// One job at each interval; per job the time from the commit's return to the handler's start.
export class PickupClock {
  constructor(jobs) {
    this.committed = new Array(jobs)
    this.started = new Array(jobs)
  }

  start(number) {
    if (number < this.started.length) this.started[number] ??= performance.now()
  }

  async run({ jobs, everyMs }, enqueueOne) {
    const begin = performance.now()
    for (let number = 0; number < jobs; number++) {
      await sleep(begin + number * everyMs - performance.now())
      await enqueueOne(number)
      this.committed[number] = performance.now()
    }
    const last = performance.now()
    while (this.missing() > 0 && performance.now() - last < 10_000) await sleep(10)
    // A handler may start before the producer has seen its own commit return: that is a wait of 0.
    const us = []
    for (let number = 0; number < jobs; number++) {
      const started = this.started[number]
      if (started !== undefined) us.push(Math.max(0, Math.round((started - this.committed[number]) * 1000)))
    }
    emit({ event: 'pickup', us, missing: this.missing() })
  }

  missing() {
    let missing = 0
    for (let number = 0; number < this.started.length; number++) if (this.started[number] === undefined) missing++
    return missing
  }
}

// Runs the verb under its time limit; `progress()` says how many jobs were done when it ran out.
export async function runVerb(verbs, given, progress) {
  const verb = verbs[given.verb]
  if (!verb || given.load > 0) {
    unsupported(verb ? 'no load beside the pickup' : `no verb ${given.verb}`)
    process.exit(0)
  }
  const limit = setTimeout(() => {
    emit({ event: 'stalled', done: progress() })
    process.exit(0)
  }, given.limitS * 1000)
  try {
    await verb(given)
    clearTimeout(limit)
    process.exit(0)
  } catch (error) {
    console.error(error)
    process.exit(1)
  }
}
