//! The till: a payment provider with its own log. Its rules are its only argument; it ends when its stdin does.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use proof::till::Rules;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

struct Till {
    rules: Rules,
    books: Mutex<Books>,
}

struct Books {
    log: File,
    random: fastrand::Rng,
    receipts: i64,
    known: HashMap<String, i64>,
}

/// What goes wrong with a call.
enum Trouble {
    None,
    Dropped,
    Missed,
    Refused,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let rules = std::env::args().nth(1).context("give the rules, as json")?;
    let rules: Rules = serde_json::from_str(&rules).context("the rules do not read")?;
    std::thread::spawn(|| {
        // Nothing is written there; it ends with the process that started this one.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
    let till = Arc::new(Till {
        books: Mutex::new(Books {
            log: File::create(&rules.log).context("the log")?,
            random: fastrand::Rng::with_seed(rules.seed),
            receipts: 0,
            known: HashMap::new(),
        }),
        rules,
    });
    println!("{}", listener.local_addr()?);
    loop {
        let (caller, _) = listener.accept().await?;
        let till = till.clone();
        // A caller that is killed in the middle of its call is what this is about.
        tokio::spawn(async move { till.answer(caller).await.ok() });
    }
}

impl Till {
    /// One call: a line `key order` in, a line with the receipt out.
    async fn answer(&self, caller: TcpStream) -> Result<()> {
        let mut caller = BufReader::new(caller);
        let mut line = String::new();
        caller.read_line(&mut line).await?;
        let (key, order) = line.trim().split_once(' ').context("a call is a key and an order")?;
        let order: i64 = order.parse()?;
        let (takes, trouble) = self.fate();
        tokio::time::sleep(takes).await;
        let reply = match trouble {
            Trouble::Missed => return Ok(()),
            Trouble::Refused => "refused".to_owned(),
            Trouble::None | Trouble::Dropped => tokio::task::block_in_place(|| self.charge(key, order))?.to_string(),
        };
        if matches!(trouble, Trouble::Dropped) {
            return tokio::task::block_in_place(|| self.books().write(&format!("dropped {order} {key}")));
        }
        caller.get_mut().write_all(format!("{reply}\n").as_bytes()).await?;
        Ok(())
    }

    fn fate(&self) -> (Duration, Trouble) {
        let Rules {
            drops, misses, refuses, ..
        } = self.rules;
        let random = &mut self.books().random;
        let takes = Duration::from_millis(random.u64(1..25));
        let trouble = match random.u32(..100) {
            roll if roll < drops => Trouble::Dropped,
            roll if roll < drops + misses => Trouble::Missed,
            roll if roll < drops + misses + refuses => Trouble::Refused,
            _ => Trouble::None,
        };
        (takes, trouble)
    }

    fn charge(&self, key: &str, order: i64) -> Result<i64> {
        let mut books = self.books();
        if self.rules.honours_keys
            && let Some(receipt) = books.known.get(key).copied()
        {
            books.write(&format!("repeated {order} {key}"))?;
            return Ok(receipt);
        }
        books.receipts += 1;
        let receipt = books.receipts;
        books.write(&format!("charged {order} {receipt} {key}"))?;
        books.known.insert(key.to_owned(), receipt);
        Ok(receipt)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// On the disk before anybody hears of it.
    fn write(&mut self, line: &str) -> Result<()> {
        self.log.write_all(format!("{line}\n").as_bytes())?;
        Ok(self.log.sync_data()?)
    }
}
