module trishanku.invalid/hack/schema

go 1.26.0
