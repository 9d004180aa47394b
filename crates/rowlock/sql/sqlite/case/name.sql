-- Names the errors of cases that were just read, under the same write lock.
-- Index: rowlock_case_file by id; writes rowlock_case_file_error.
update rowlock_case_file set error_no = u.value ->> 'no'
from json_each(?1) u
where rowlock_case_file.id = u.value ->> 'id'
