//! The calls of SQS, ten messages at a time. A batch may succeed in part; every call says what became of each.

use std::{collections::BTreeMap, time::Duration};

use aws_config::{BehaviorVersion, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::{
    Client,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
        QueueAttributeName, SendMessageBatchRequestEntry,
    },
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::error::{Error, Result};

/// What SQS takes in one call.
pub(crate) const BATCH: usize = 10;

/// A poll may take twenty seconds. A call that takes much longer has failed.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A client from the standard AWS environment (`AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, a container's or
/// machine's role, …), at another address if one is given. It makes no call yet, except to find the credentials'
/// region.
///
/// Cancel-safe.
pub async fn connect(endpoint_url: Option<&str>) -> Client {
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_MAX)
        .operation_attempt_timeout(CALL_MAX)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(2));
    if let Some(url) = endpoint_url {
        loader = loader.endpoint_url(url);
    }
    Client::new(&loader.load().await)
}

/// A message as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) id: String,
    pub(crate) receipt: String,
    pub(crate) body: String,
    /// The caller's attributes that are text or numbers.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Of a FIFO queue. On any other a message group only shares the queue out fairly, and keeps nothing in order.
    pub(crate) group: Option<String>,
}

impl Incoming {
    fn of(message: Message, fifo: bool) -> Option<Incoming> {
        let caller = message.message_attributes.unwrap_or_default();
        let attributes = caller
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.string_value?)))
            .collect();
        let system = message.attributes.unwrap_or_default();
        Some(Incoming {
            id: message.message_id?,
            receipt: message.receipt_handle?,
            body: message.body.unwrap_or_default(),
            attributes,
            group: system
                .get(&MessageSystemAttributeName::MessageGroupId)
                .filter(|_| fifo)
                .cloned(),
        })
    }
}

/// A message to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) body: String,
    /// For a FIFO queue.
    pub(crate) group: String,
    /// For a FIFO queue: SQS drops another message with the same id for five minutes.
    pub(crate) once: String,
}

/// One queue.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    client: Client,
    pub(crate) url: String,
    fifo: bool,
}

impl Outside {
    pub(crate) fn new(client: Client, url: &str) -> Outside {
        Outside {
            client,
            url: url.to_owned(),
            fifo: url.ends_with(".fifo"),
        }
    }

    /// Whether the queue exists. Without the right to ask, the answer is yes.
    pub(crate) async fn check(&self) -> Result<()> {
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let told = asked.attribute_names(QueueAttributeName::QueueArn).send().await;
        match told {
            Err(error) if error.as_service_error().is_some_and(|e| e.is_queue_does_not_exist()) => {
                Err(Error::NoQueue { url: self.url.clone() })
            }
            Err(error) => {
                let error = Error::sqs("check whether the queue exists", error).whole();
                tracing::warn!("{error}; continuing as if it does");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Waits for messages. One without an id or a receipt is left out.
    pub(crate) async fn receive(&self, visibility: Duration, wait: Duration) -> Result<Vec<Incoming>> {
        let whole = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let received = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(BATCH as i32)
            .visibility_timeout(whole(visibility))
            .wait_time_seconds(whole(wait))
            .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId)
            .message_attribute_names("All")
            .send()
            .await
            .map_err(|error| Error::sqs("receive messages", error))?;
        let messages = received.messages.unwrap_or_default();
        let incoming = messages
            .into_iter()
            .filter_map(|message| Incoming::of(message, self.fifo));
        Ok(incoming.collect())
    }

    /// Hides these messages for so long from now. Returns those that it could not hide. A call that takes longer than
    /// `limit` has failed.
    pub(crate) async fn extend(
        &self,
        receipts: &[String],
        visibility: Duration,
        limit: Duration,
    ) -> Result<Vec<usize>> {
        let seconds = i32::try_from(visibility.as_secs()).unwrap_or(i32::MAX);
        let mut call = self.client.change_message_visibility_batch().queue_url(&self.url);
        for (no, receipt) in receipts.iter().enumerate() {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(no.to_string())
                .receipt_handle(receipt)
                .visibility_timeout(seconds);
            call = call.entries(
                entry
                    .build()
                    .map_err(|error| Error::sqs("extend the visibility of messages", error))?,
            );
        }
        let told = tokio::time::timeout(limit, call.send())
            .await
            .map_err(|error| Error::sqs("extend the visibility of messages", error))?
            .map_err(|error| Error::sqs("extend the visibility of messages", error))?;
        Ok(told.failed.iter().filter_map(|entry| entry.id.parse().ok()).collect())
    }

    /// Deletes these messages. Returns those that it could not delete.
    pub(crate) async fn delete(&self, receipts: &[String]) -> Result<Vec<usize>> {
        let mut call = self.client.delete_message_batch().queue_url(&self.url);
        for (no, receipt) in receipts.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder()
                .id(no.to_string())
                .receipt_handle(receipt);
            call = call.entries(entry.build().map_err(|error| Error::sqs("delete messages", error))?);
        }
        let told = call
            .send()
            .await
            .map_err(|error| Error::sqs("delete messages", error))?;
        Ok(told.failed.iter().filter_map(|entry| entry.id.parse().ok()).collect())
    }

    /// Sends these messages. Returns those that it could not send.
    pub(crate) async fn send(&self, messages: &[Outgoing]) -> Result<Vec<usize>> {
        let mut call = self.client.send_message_batch().queue_url(&self.url);
        for (no, message) in messages.iter().enumerate() {
            let entry = SendMessageBatchRequestEntry::builder()
                .id(no.to_string())
                .message_body(&message.body)
                .set_message_group_id(self.fifo.then(|| message.group.clone()))
                .set_message_deduplication_id(self.fifo.then(|| message.once.clone()));
            call = call.entries(entry.build().map_err(|error| Error::sqs("send messages", error))?);
        }
        let told = call.send().await.map_err(|error| Error::sqs("send messages", error))?;
        Ok(told.failed.iter().filter_map(|entry| entry.id.parse().ok()).collect())
    }
}

/// The pause after a failure: longer each time, with jitter.
#[derive(Debug)]
pub(crate) struct Pause {
    next: Duration,
    max: Duration,
}

impl Pause {
    pub(crate) const FIRST: Duration = Duration::from_millis(100);

    pub(crate) fn up_to(max: Duration) -> Pause {
        Pause {
            next: Pause::FIRST,
            max,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = (self.next * 2).min(self.max);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.next = Pause::FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_group_is_an_order_on_a_fifo_queue_alone() {
        let message = Message::builder()
            .message_id("m")
            .receipt_handle("r")
            .attributes(MessageSystemAttributeName::MessageGroupId, "tenant 42")
            .build();
        let group = |fifo| Incoming::of(message.clone(), fifo).and_then(|incoming| incoming.group);
        assert_eq!((group(true).as_deref(), group(false)), (Some("tenant 42"), None));
    }

    #[test]
    fn a_pause_grows_to_its_limit_and_starts_anew() {
        let mut pause = Pause::up_to(Duration::from_secs(1));
        let pauses: Vec<Duration> = (0..8).map(|_| pause.next()).collect();
        assert!(pauses[0] >= Duration::from_millis(50) && pauses[0] <= Duration::from_millis(100));
        assert!(pauses[7] >= Duration::from_millis(500) && pauses[7] <= Duration::from_secs(1));
        pause.reset();
        assert!(pause.next() <= Duration::from_millis(100));
    }
}
