-- Gives the jobs whose bodies were just inserted their place; due times are clamped to the clock.
-- Index: none read; writes rowlock_ready_order.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select
  ?3 + d.key, d.value ->> 'queue_no', d.value ->> 'kind_no', 0, d.value ->> 'priority',
  max(coalesce(d.value ->> 'due_at', ?2 + (d.value ->> 'delay_us')), ?2), 0, 0, d.value ->> 'attempts_max'
from json_each(?1) d
