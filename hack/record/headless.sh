# Title: A headless cluster
# Description: A terminal session. "trishanku up" starts a headless cluster; "trishanku demo" creates a Deployment and prints which branch made which change; "trishanku log -p" prints who changed one of its pods, and which fields.
# Rows: 34
show 'trishanku up --detach'
show 'trishanku demo --keep'
pod=$(trishanku kubectl get pods --output=name | head -n 1)
show "trishanku log -p $pod"
