-- Lists how attempts of these jobs ended after the given time.
-- Index: rowlock_outcome_id.
select o.id, o.error from json_each(?1) u cross join rowlock_outcome o on o.id = u.value
where o.ended_at > ?2
