-- Notes in the body that the job runs once more, and whether it was done before.
-- Index: rowlock_job by id, rowlock_outcome_id.
-- no twin: postgresql writes it inside rowlock.rerun.
update rowlock_job set
  reran_at = ?2,
  was_done = case
    when exists (select 1 from rowlock_outcome o where o.id = rowlock_job.id and o.outcome = 'done') then 1
    else was_done
  end
where id = ?1
