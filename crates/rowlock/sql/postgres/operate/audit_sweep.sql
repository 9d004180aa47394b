-- Removes what people did before the given time to jobs that are gone, a bounded number at a time.
-- Index: audit_pkey, from its oldest entry on; job_pkey. Inside rowlock.drop_audit.
select rowlock.drop_audit($1, $2)
