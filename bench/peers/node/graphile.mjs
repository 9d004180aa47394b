// graphile-worker at the fastest settings found on one small machine; each choice says what it was weighed against.
import { Logger, WorkerPreset, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import * as program from './program.mjs'

const DATABASE = process.env.DATABASE_URL
const CONNECTIONS = 16
// Four calls in flight beat one by about a third; 2500 jobs a call.
const CHUNK = 2500
const LANES = 4
// The local queue locks many jobs with one statement and the batched completion deletes many with one; without them
// each job costs two round trips. Larger queues, longer batches and 24 or 128 jobs at once were ties.
const DRAIN = { concurrentJobs: 64, pollInterval: 100, localQueue: { size: 1000 }, completeJobBatchDelay: 2 }
// A single job has no use for the local queue; with one the waits were the same.
const PICKUP = { concurrentJobs: 4, pollInterval: 100 }
// The values of the library quickstart in its documentation.
const DEFAULTS = { concurrentJobs: 5, pollInterval: 1000 }

// It logs a line per job on stdout by default. Only warnings are kept, in every mode, which is in its favour.
const quiet = new Logger(() => (level, text) => {
  if (level === 'error' || level === 'warning') console.error(text)
})

let handled = 0

async function open(connections = CONNECTIONS) {
  const pool = new pg.Pool({ connectionString: DATABASE, max: connections })
  const complain = (error) => console.error(error)
  pool.on('error', complain)
  pool.on('connect', (client) => client.on('error', complain))
  await Promise.all(Array.from({ length: connections }, () => pool.query('select pg_sleep(0.05)')))
  return pool
}

// Whether a job of the kind is still to be locked, run or deleted.
const leftIn = (pool, kind) => async () => {
  const sql = 'select exists (select 1 from graphile_worker.jobs where task_identifier = $1) as found'
  const { rows } = await pool.query(sql, [kind])
  return rows[0].found
}

const utilsOf = (pool) => makeWorkerUtils({ pgPool: pool, logger: quiet })
const workerOf = (pool, worker, taskList) => {
  const preset = { extends: [WorkerPreset], worker: { ...worker, maxPoolSize: CONNECTIONS } }
  return run({ preset, pgPool: pool, taskList, logger: quiet, noHandleSignals: true, crontab: '' })
}

const jobOf = (kind) => (number, payload) => ({ identifier: kind, payload: program.makePayload(number, payload) })

async function noop(payload) {
  program.checkPayload(payload)
  handled++
}

// Named, so that the driver prepares each once per connection.
const UPDATE = { name: 'update', text: 'update bench_account set total = total + 1 where id = $1' }
const INSERT = { name: 'insert', text: 'insert into bench_entry (job, account) values ($1, $2)' }
const NEXT = { name: 'next', text: "select graphile_worker.add_job('after', json_build_object('number', $1::bigint))" }

// The job is deleted after the handler's own transaction, in another one: there is no way to do both in one.
const book = (next) => async ({ number }, { withPgClient }) => {
  const account = number % 10_000
  await withPgClient(async (client) => {
    await client.query('begin')
    try {
      await client.query({ ...UPDATE, values: [account] })
      await client.query({ ...INSERT, values: [number, account] })
      if (next) await client.query({ ...NEXT, values: [number] })
      await client.query('commit')
    } catch (error) {
      await client.query('rollback')
      throw error
    }
  })
  handled++
}

function about() {
  const drain = 'concurrentJobs 64, localQueue 1000, completeJobBatchDelay 2 ms, pollInterval 100 ms, pool 16'
  program.emit({
    event: 'about',
    name: 'graphile-worker (npm)',
    version: program.versionOf('graphile-worker'),
    settings: {
      enqueue: `addJobs of ${CHUNK}, ${LANES} calls in flight, pool ${CONNECTIONS}`,
      drain,
      book: `${drain}; the handler commits its own transaction, the job is completed after it`,
      life: `${drain}; producer in a thread of its own`,
      pickup: 'concurrentJobs 4, no local queue, LISTEN',
      defaults: 'concurrentJobs 5, pollInterval 1000 ms',
    },
    keeps_history: false,
    completes_in_handlers_tx: false,
    fenced: false,
  })
}

async function setup() {
  const utils = await utilsOf(await open(2))
  await utils.migrate()
  program.emit({ event: 'ready' })
}

async function enqueue({ jobs, payload, kind }) {
  const utils = await utilsOf(await open())
  const make = jobOf(kind)
  const chunks = program.makeChunks(jobs, CHUNK, (number) => make(number, payload))
  const start = performance.now()
  await program.sendChunks(chunks, LANES, (chunk) => utils.addJobs(chunk))
  program.emit({ event: 'enqueued', jobs, seconds: program.secondsSince(start) })
}

async function drain({ jobs, kind, next, mode, batch }) {
  if (batch !== undefined) return program.unsupported('a handler gets one job; no jobs share a commit')
  const pool = await open()
  const handlers = { [kind]: kind === 'noop' ? noop : book(next) }
  const start = performance.now()
  await workerOf(pool, mode === 'defaults' ? DEFAULTS : DRAIN, handlers)
  const ended = await program.untilDurable(jobs, () => handled, leftIn(pool, kind))
  const seconds = program.secondsSince(start)
  program.emit({ event: 'drained', jobs, seconds, handlers_seconds: (ended - start) / 1000 })
}

// A worker and a producer beside it, both connected before the clock starts.
async function live(jobs, payload) {
  const pool = await open()
  const producer = program.startProducer(import.meta.url, { jobs, payload })
  await producer.ready
  const start = performance.now()
  const handler = async (given) => {
    await noop(given)
    producer.done(1)
  }
  await workerOf(pool, DRAIN, { noop: handler })
  producer.go()
  return { pool, producer, start }
}

async function life({ jobs, payload }) {
  const { pool, start } = await live(jobs, payload)
  await program.untilDurable(jobs, () => handled, leftIn(pool, 'noop'))
  program.emit({ event: 'lived', jobs, seconds: program.secondsSince(start) })
}

async function hold({ seconds, payload }) {
  const { producer } = await live(Infinity, payload)
  await program.printSeconds(seconds, producer)
}

async function producer() {
  const connect = async () => {
    const utils = await utilsOf(await open(LANES))
    return { send: (chunk) => utils.addJobs(chunk) }
  }
  await program.runProducer({ open: connect, size: CHUNK, lanes: LANES, make: jobOf('noop') })
}

async function pickup(given) {
  if (given.pollOnly) return program.unsupported('it always listens; polling alone cannot be chosen')
  const pool = await open()
  const utils = await utilsOf(pool)
  const clock = new program.PickupClock(given.jobs)
  const handler = async ({ number }) => {
    clock.start(number)
    handled++
  }
  await workerOf(pool, PICKUP, { pickup: handler })
  await program.sleep(500)
  await clock.run(given, (number) => utils.addJob('pickup', program.makePayload(number, given.payload)))
}

async function stuck({ again }) {
  const handler = async () => {
    program.emit({ event: 'started', pid: process.pid })
    await program.sleep(3_600_000)
  }
  const pool = await open(10)
  if (!again) await (await utilsOf(pool)).addJob('stuck', { number: 0 })
  await workerOf(pool, DEFAULTS, { stuck: handler })
  await program.sleep(3_600_000)
}

const verbs = { about, setup, enqueue, drain, life, hold, pickup, stuck }
if (program.inProducerThread) await producer()
else await program.runVerb(verbs, program.readArguments(), () => handled)
