// pg-boss at the fastest settings found on one small machine; each choice says what it was weighed against.
import { PgBoss } from 'pg-boss'
import * as program from './program.mjs'

const DATABASE = process.env.DATABASE_URL
const CONNECTIONS = 16
// `insert` takes a whole chunk in one statement; four calls in flight beat one by about a third.
const CHUNK = 2500
const LANES = 4
// While batches come back full a worker fetches again at once; otherwise it would wait at least half a second.
const FETCH = { burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
const DRAIN = { ...FETCH, localConcurrency: 4, batchSize: 1000 }
// Handler's writes and completions of a batch commit together. One job per batch would poll: burst needs two or more.
const BOOK = { ...FETCH, transactional: true, localConcurrency: 8, batchSize: 10 }
// One commit per job (`--batch 1`): the handler settles each job itself through a transaction it opened.
const ALONE = { ...FETCH, localConcurrency: 2, batchSize: 200 }
const ALONE_LANES = 8
// `live` wakes its workers by NOTIFY; the other queues are filled before anybody works on them.
const LIVE = 'live'
const QUEUES = [{ name: 'noop' }, { name: 'book' }, { name: 'after' }, { name: 'stuck' }, { name: LIVE, notify: true }]

let handled = 0

async function open(options = {}) {
  const boss = new PgBoss({ connectionString: DATABASE, max: CONNECTIONS, ...options })
  boss.on('error', (error) => console.error(error))
  await boss.start()
  return boss
}

// Opens the pool's connections, so that no clock counts it.
async function warm(boss) {
  await Promise.all(Array.from({ length: CONNECTIONS }, () => boss.getDb().executeSql('select pg_sleep(0.05)')))
}

// Whether a job of the queue is still to be fetched, run or completed.
const leftIn = (boss, queue) => async () => {
  const sql = "select exists (select 1 from pgboss.job where name = $1 and state < 'completed') as found"
  const { rows } = await boss.getDb().executeSql(sql, [queue])
  return rows[0].found
}

async function noop(jobs) {
  for (const job of jobs) program.checkPayload(job.data)
  handled += jobs.length
}

async function writeBook(tx, number) {
  const account = number % 10_000
  await tx.executeSql('update bench_account set total = total + 1 where id = $1', [account])
  await tx.executeSql('insert into bench_entry (job, account) values ($1, $2)', [number, account])
}

// pg-boss completes the batch in `tx` after this returns, and commits.
const bookTogether = (boss, next) => async (jobs, tx) => {
  for (const job of jobs) await writeBook(tx, job.data.number)
  const after = jobs.map((job) => ({ data: { number: job.data.number } }))
  if (next) await boss.insert('after', after, { db: tx })
  handled += jobs.length
}

const bookAlone = (boss, next) => async (jobs) => {
  const rest = jobs.values()
  const lane = async () => {
    for (const job of rest) {
      const tx = await boss.getDb().beginTransaction()
      try {
        await writeBook(tx.db, job.data.number)
        if (next) await boss.send('after', { number: job.data.number }, { db: tx.db })
        const { affected } = await boss.complete('book', job, null, { db: tx.db })
        if (affected !== 1) throw new Error(`job ${job.data.number} is no longer ours`)
        await tx.commit()
      } catch (error) {
        await tx.rollback()
        throw error
      }
      handled++
    }
  }
  await Promise.all(Array.from({ length: ALONE_LANES }, lane))
}

function about() {
  const pool = `pool ${CONNECTIONS}`
  program.emit({
    event: 'about',
    name: 'pg-boss',
    version: program.versionOf('pg-boss'),
    settings: {
      enqueue: `insert of ${CHUNK}, ${LANES} calls in flight, ${pool}`,
      drain: `4 local workers x batch 1000, burstWhenBatchFull, ${pool}`,
      book: `transactional, 8 local workers x batch 10 (ten jobs share one commit and one fate), ${pool}`,
      life: `as drain, with notify; producer in a thread of its own`,
      pickup: 'queue notify + useListenNotify; poll-only: every 0.5 s (its smallest), batch 100',
      defaults: 'work(queue, handler): one job each 2 s; book with transactional: true',
    },
    keeps_history: true,
    completes_in_handlers_tx: true,
    fenced: true,
  })
}

async function setup() {
  const boss = await open()
  for (const { name, ...options } of QUEUES) await boss.createQueue(name, options)
  program.emit({ event: 'ready' })
}

async function enqueue({ jobs, payload, kind }) {
  const boss = await open()
  await warm(boss)
  const chunks = program.makeChunks(jobs, CHUNK, (number) => ({ data: program.makePayload(number, payload) }))
  const start = performance.now()
  await program.sendChunks(chunks, LANES, (chunk) => boss.insert(kind, chunk))
  program.emit({ event: 'enqueued', jobs, seconds: program.secondsSince(start) })
}

function work(boss, { kind, next, mode, batch }) {
  const tuned = mode !== 'defaults'
  if (kind === 'noop') return tuned ? boss.work('noop', DRAIN, noop) : boss.work('noop', noop)
  if (batch === 1) return boss.work('book', ALONE, bookAlone(boss, next))
  const size = batch ?? (tuned ? BOOK.batchSize : 1)
  const options = tuned ? { ...BOOK, batchSize: size } : { transactional: true, batchSize: size }
  return boss.work('book', options, bookTogether(boss, next))
}

async function drain(given) {
  const boss = await open()
  await warm(boss)
  const start = performance.now()
  await work(boss, given)
  const handlers = await program.untilDurable(given.jobs, () => handled, leftIn(boss, given.kind))
  const seconds = program.secondsSince(start)
  program.emit({ event: 'drained', jobs: given.jobs, seconds, handlers_seconds: (handlers - start) / 1000 })
}

// A worker on the live queue and a producer beside it, both connected before the clock starts.
async function live(jobs, payload) {
  const boss = await open({ useListenNotify: true })
  await warm(boss)
  const producer = program.startProducer(import.meta.url, { jobs, payload })
  await producer.ready
  const start = performance.now()
  await boss.work(LIVE, DRAIN, async (batch) => {
    await noop(batch)
    producer.done(batch.length)
  })
  producer.go()
  return { boss, producer, start }
}

async function life({ jobs, payload }) {
  const { boss, start } = await live(jobs, payload)
  await program.untilDurable(jobs, () => handled, leftIn(boss, LIVE))
  program.emit({ event: 'lived', jobs, seconds: program.secondsSince(start) })
}

async function hold({ seconds, payload }) {
  const { producer } = await live(Infinity, payload)
  await program.printSeconds(seconds, producer)
}

async function producer() {
  const connect = async () => {
    const boss = await open()
    await warm(boss)
    return { send: (chunk) => boss.insert(LIVE, chunk) }
  }
  const make = (number, payload) => ({ data: program.makePayload(number, payload) })
  await program.runProducer({ open: connect, size: CHUNK, lanes: LANES, make })
}

async function pickup(given) {
  const boss = await open({ useListenNotify: !given.pollOnly })
  await warm(boss)
  const clock = new program.PickupClock(given.jobs)
  // Each poll takes all that came since the last: at one job per poll the jobs would queue up.
  const options = given.pollOnly ? { pollingIntervalSeconds: 0.5, batchSize: 100 } : {}
  await boss.work(LIVE, options, async (jobs) => {
    for (const job of jobs) clock.start(job.data.number)
    handled += jobs.length
  })
  await program.sleep(500)
  await clock.run(given, (number) => boss.send(LIVE, program.makePayload(number, given.payload)))
}

async function stuck({ again }) {
  const boss = new PgBoss(DATABASE)
  boss.on('error', (error) => console.error(error))
  await boss.start()
  if (!again) await boss.send('stuck', { number: 0 })
  await boss.work('stuck', async () => {
    program.emit({ event: 'started', pid: process.pid })
    await program.sleep(3_600_000)
  })
  await program.sleep(3_600_000)
}

const verbs = { about, setup, enqueue, drain, life, hold, pickup, stuck }
if (program.inProducerThread) await producer()
else await program.runVerb(verbs, program.readArguments(), () => handled)
