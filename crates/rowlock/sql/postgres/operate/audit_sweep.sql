-- Removes audit entries from before the given time about jobs that are gone, a bounded number per call.
-- Index: audit_pkey, from its oldest entry on; job_pkey. Inside rowlock.drop_audit.
select rowlock.drop_audit($1, $2)
